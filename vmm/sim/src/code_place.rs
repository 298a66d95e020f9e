//! An instruction of a program by what it is ([`CodePlace`]), so that it can be named in the log of a run and found again in another
//! one, where it may lie elsewhere in memory.
//!
//! Neighbours: [`crate::computing`] names loops so, [`crate::switches`] instructions at which tasks give way.

use std::fmt;
use std::str::FromStr;

use bloodhound_kernel::ids::{MmId, Tid};
use bloodhound_kernel::mm::{Backing, Vma};
use bloodhound_kernel::node::{MachineId, Node};

use crate::computing::RETURNS;

/// Bytes by which the instruction at a place in memory is known again.
const CODE: usize = 8;

/// Where an instruction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// In a file of the base layer: digest and offset.
    File([u8; 32], u64),
    /// In the memory of an address space, where a program has made code.
    Memory(MachineId, u64, u64),
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodePlace {
    place: Place,
    /// The bytes that stand there: other code at this place is another instruction.
    code: [u8; CODE],
}

impl fmt::Display for CodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        match self.place {
            Place::File(digest, offset) => write!(f, "file:{}:{offset:#x}", hex(&digest))?,
            Place::Memory(machine, space, address) => write!(f, "memory:{}:{space}:{address:#x}", machine.0)?,
        }
        write!(f, ":{}", hex(&self.code))
    }
}

impl FromStr for CodePlace {
    type Err = String;

    fn from_str(text: &str) -> Result<CodePlace, String> {
        let wrong = || format!("`{text}` names no instruction");
        let hex = |text: &str, out: &mut [u8]| -> Option<()> {
            if text.len() != out.len() * 2 || !text.is_ascii() {
                return None;
            }
            for (at, byte) in out.iter_mut().enumerate() {
                *byte = u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).ok()?;
            }
            Some(())
        };
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let parts: Vec<&str> = text.split(':').collect();
        let parsed = || {
            let mut code = [0; CODE];
            hex(parts.last()?, &mut code)?;
            let place = match parts[..] {
                ["file", digest, offset, _] => {
                    let mut bytes = [0; 32];
                    hex(digest, &mut bytes)?;
                    Place::File(bytes, number(offset)?)
                }
                ["memory", machine, space, address, _] => {
                    let machine = MachineId(u32::try_from(number(machine)?).ok()?);
                    Place::Memory(machine, number(space)?, number(address)?)
                }
                _ => return None,
            };
            Some(CodePlace { place, code })
        };
        parsed().ok_or_else(wrong)
    }
}

impl CodePlace {
    /// The instruction at an address of a task's memory.
    pub(crate) fn at(node: &Node, id: MachineId, tid: Tid, mm: MmId, address: u64) -> Option<CodePlace> {
        let mut code = [0; CODE];
        node.peek(tid, address, &mut code).ok()?;
        let vma = node.mms[mm].find(address)?;
        let of_file = match vma.backing {
            Backing::File { ino, offset } => {
                let image = node.vfs.pristine(ino);
                image.map(|image| Place::File(image.sha256(), offset + (address - vma.start)))
            }
            _ => None,
        };
        let place = of_file.unwrap_or(Place::Memory(id, node.mms[mm].space, address));
        Some(CodePlace { place, code })
    }

    /// The instruction in a file with this digest, which a task has at an address.
    pub(crate) fn of_file(
        node: &Node,
        tid: Tid,
        (digest, offset): ([u8; 32], u64),
        address: u64,
    ) -> Option<CodePlace> {
        let mut code = [0; CODE];
        node.peek(tid, address, &mut code).ok()?;
        Some(CodePlace { place: Place::File(digest, offset), code })
    }

    /// Digest of the file that the instruction is in, and its offset there; `None` for code that a program has made.
    pub fn in_file(&self) -> Option<([u8; 32], u64)> {
        match self.place {
            Place::File(digest, offset) => Some((digest, offset)),
            Place::Memory(..) => None,
        }
    }

    /// How many times as many passes it takes of it as of a jump to be a counted loop: of `ret`, also with a prefix that means nothing
    /// there, more.
    pub(crate) fn weight(&self) -> u64 {
        match self.code.iter().find(|byte| !matches!(byte, 0xf2 | 0xf3)) {
            Some(0xc2 | 0xc3) => RETURNS,
            _ => 1,
        }
    }

    /// Where the instruction is in the memory of a task.
    pub(crate) fn addresses(&self, node: &Node, id: MachineId, tid: Tid, mm: MmId) -> Vec<u64> {
        let places: Vec<u64> = match self.place {
            Place::Memory(machine, space, address) if (machine, space) == (id, node.mms[mm].space) => {
                vec![address]
            }
            Place::Memory(..) => Vec::new(),
            Place::File(digest, at) => {
                let of_file = |vma: &Vma| match vma.backing {
                    Backing::File { ino, offset }
                        if (offset..offset + (vma.end - vma.start)).contains(&at)
                            && vma.prot & bloodhound_abi::consts::PROT_EXEC != 0
                            && node.vfs.pristine(ino).is_some_and(|image| image.sha256() == digest) =>
                    {
                        Some(vma.start + (at - offset))
                    }
                    _ => None,
                };
                node.mms[mm].vmas().filter_map(of_file).collect()
            }
        };
        let is_there = |address: &u64| {
            let mut code = [0; CODE];
            node.peek(tid, *address, &mut code).is_ok() && code == self.code
        };
        places.into_iter().filter(is_there).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_names() {
        let code = [0x75, 0xf6, 0, 1, 2, 3, 4, 255];
        for place in [Place::File([0xab; 32], 0x1234), Place::Memory(MachineId(3), 17, 0x7f00_0000_1000)] {
            let counted = CodePlace { place, code };
            assert_eq!(counted.to_string().parse(), Ok(counted));
        }
        for wrong in ["", "file", "file:00:0x1:00", "memory:1:2:0x3:75f6", "memory:x:2:0x3:75f6000102030aff"]
        {
            assert!(wrong.parse::<CodePlace>().is_err(), "{wrong}");
        }
    }
}
