//! Which system calls code may make: [`requests`].
//!
//! The code is read from beginning to end. Constants are followed through registers as far as nothing else may have changed them: at a
//! `syscall` instruction, at calls of the C library's functions of that name, of `syscall(2)`, and of Go's functions for it. What is found may
//! be made; what a program computes at run time is not found.

use std::collections::BTreeMap;

use bloodhound_abi::table::nr;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, ObjectSymbolTable as _, RelocationTarget};

use super::{File, Unfit};
use crate::request::{self, Request, Value};
use crate::symbols;

/// Registers of arguments: of system calls, of C functions, of Go functions.
const KERNEL: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::R10, Register::R8, Register::R9];
const C: [Register; 7] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9, Register::None];
const GO: [Register; 7] =
    [Register::RAX, Register::RBX, Register::RCX, Register::RDI, Register::RSI, Register::R8, Register::R9];

/// What a program's code may ask for, with a place where it does: the function's name, or an address.
///
/// # Errors
/// It cannot run on x86-64.
pub fn requests(bytes: &[u8]) -> Result<BTreeMap<Request, String>, Unfit> {
    let file = super::open(bytes)?;
    let mut scan = Scan { names: names(&file), slots: slots(&file), ..Scan::default() };
    for section in file.sections() {
        if let Ok(name) = section.name()
            && name.starts_with(".plt")
            && let Ok(code) = section.data()
        {
            scan.stubs(section.address(), code);
        }
    }
    for section in file.sections() {
        let is_code = section.kind() == object::SectionKind::Text;
        if let (true, Ok(code)) = (is_code, section.data()) {
            scan.code(section.address(), code);
        }
    }
    Ok(scan.found)
}

/// Addresses of functions that the file has itself.
fn names(file: &File<'_>) -> BTreeMap<u64, String> {
    let all = file.symbols().chain(file.dynamic_symbols());
    let functions = all.filter(|s| s.kind() == object::SymbolKind::Text && s.address() != 0);
    functions.filter_map(|s| Some((s.address(), s.name().ok()?.to_owned()))).collect()
}

/// Where the addresses of other files' functions are put.
fn slots(file: &File<'_>) -> BTreeMap<u64, String> {
    let (Some(relocations), Some(symbols)) = (file.dynamic_relocations(), file.dynamic_symbol_table()) else {
        return BTreeMap::new();
    };
    let name = |target| match target {
        RelocationTarget::Symbol(index) => Some(symbols.symbol_by_index(index).ok()?.name().ok()?.to_owned()),
        _ => None,
    };
    relocations.filter_map(|(at, relocation)| Some((at, name(relocation.target())?))).collect()
}

#[derive(Default)]
struct Scan {
    names: BTreeMap<u64, String>,
    slots: BTreeMap<u64, String>,
    known: BTreeMap<Register, u64>,
    found: BTreeMap<Request, String>,
}

impl Scan {
    /// Stubs of the procedure linkage table: each jumps through the slot of a function, after an `endbr64` perhaps.
    fn stubs(&mut self, address: u64, code: &[u8]) {
        for instruction in Decoder::with_ip(64, code, address, DecoderOptions::NONE).iter() {
            let is_jump = instruction.mnemonic() == Mnemonic::Jmp && instruction.is_ip_rel_memory_operand();
            let Some(name) = self.slots.get(&instruction.ip_rel_memory_address()).filter(|_| is_jump) else {
                continue;
            };
            let name = name.clone();
            for begin in [instruction.ip(), instruction.ip() & !15, instruction.ip().saturating_sub(4)] {
                self.names.entry(begin).or_insert_with(|| name.clone());
            }
        }
    }

    fn code(&mut self, address: u64, code: &[u8]) {
        let mut factory = InstructionInfoFactory::new();
        let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        self.known.clear();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if self.names.contains_key(&instruction.ip()) {
                self.known.clear();
            }
            self.step(&instruction, &mut factory);
        }
    }

    fn step(&mut self, instruction: &Instruction, factory: &mut InstructionInfoFactory) {
        if instruction.mnemonic() == Mnemonic::Syscall {
            if let Some(nr) = self.known.get(&Register::RAX).copied() {
                self.ask(nr, &KERNEL, instruction.ip());
            }
            for register in [Register::RAX, Register::RCX, Register::R11] {
                self.known.remove(&register);
            }
            return;
        }
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => {
                if let Some(name) = self.callee(instruction).cloned() {
                    self.called(&name, instruction.ip());
                }
                self.known.clear();
                return;
            }
            FlowControl::UnconditionalBranch => {
                // The last call of a function may be a jump.
                if let Some(name) = self.callee(instruction).cloned() {
                    self.called(&name, instruction.ip());
                }
                self.known.clear();
                return;
            }
            FlowControl::Return | FlowControl::IndirectBranch | FlowControl::Exception => {
                self.known.clear();
                return;
            }
            _ => {}
        }
        let value = constant(instruction);
        for used in factory.info(instruction).used_registers() {
            let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
            if writes {
                self.known.remove(&used.register().full_register());
            }
        }
        if let Some(value) = value {
            self.known.insert(instruction.op0_register().full_register(), value);
        }
    }

    /// The function that is called, by name.
    fn callee(&self, instruction: &Instruction) -> Option<&String> {
        match instruction.op0_kind() {
            OpKind::NearBranch64 => self.names.get(&instruction.near_branch64()),
            OpKind::Memory if instruction.is_ip_rel_memory_operand() => {
                self.slots.get(&instruction.ip_rel_memory_address())
            }
            _ => None,
        }
    }

    fn called(&mut self, name: &str, at: u64) {
        let name = name.split('@').next().unwrap_or(name);
        match name {
            "syscall" => {
                if let Some(nr) = self.known.get(&C[0]).copied() {
                    self.ask(nr, &C[1..], at);
                }
            }
            // Go hands arguments over in registers of its own since 1.17.
            "syscall.Syscall"
            | "syscall.Syscall6"
            | "syscall.RawSyscall"
            | "syscall.RawSyscall6"
            | "syscall.rawSyscallNoError"
            | "syscall.rawVforkSyscall"
            | "runtime/internal/syscall.Syscall6"
            | "internal/runtime/syscall.Syscall6"
            | "internal/syscall/unix.Syscall"
            | "golang.org/x/sys/unix.Syscall"
            | "golang.org/x/sys/unix.Syscall6"
            | "golang.org/x/sys/unix.RawSyscall"
            | "golang.org/x/sys/unix.RawSyscall6"
            | "golang.org/x/sys/unix.SyscallNoError"
            | "golang.org/x/sys/unix.RawSyscallNoError" => {
                if let Some(nr) = self.known.get(&GO[0]).copied() {
                    self.ask(nr, &GO[1..], at);
                }
            }
            // clone(3) of C libraries is another function: "fn, stack, flags, arg".
            "clone" => self.ask(nr::clone, &[Register::RDX], at),
            "exit" => {}
            name => {
                if let Some(nr) = request::number(name) {
                    self.ask(nr, &C, at);
                }
            }
        }
    }

    /// A call with what is known of its arguments.
    fn ask(&mut self, nr: u64, registers: &[Register], at: u64) {
        let Some(info) = bloodhound_abi::table::info(nr) else {
            let place = self.place(at);
            let request = Request { nr, args: Vec::new(), object: None, options: String::new() };
            self.found.entry(request).or_insert(place);
            return;
        };
        let mut args = Vec::new();
        let mut options = Vec::new();
        for ((name, kind), register) in info.args.iter().zip(registers) {
            let known = self.known.get(register).copied();
            let selects = request::selects(name, *kind);
            if selects {
                options.push(known.map_or("?".to_owned(), |value| symbols::text(name, *kind, value, &args)));
            }
            args.push(known.filter(|_| selects).map_or(Value::Unknown, Value::Number));
        }
        let has_fd = info.args.iter().any(|(_, kind)| *kind == bloodhound_abi::args::ArgKind::Fd);
        let object = has_fd.then_some(request::Object::Unknown);
        let place = self.place(at);
        let request = Request { nr, args, object, options: options.join(", ") };
        self.found.entry(request).or_insert(place);
    }

    /// The function in which an address is.
    fn place(&self, at: u64) -> String {
        match self.names.range(..=at).next_back() {
            Some((_, name)) => name.clone(),
            None => format!("{at:#x}"),
        }
    }
}

/// The number that an instruction puts into its first register.
fn constant(instruction: &Instruction) -> Option<u64> {
    let is_register = |n: u32| instruction.op_count() > n && instruction.op_kind(n) == OpKind::Register;
    if !is_register(0) {
        return None;
    }
    match instruction.mnemonic() {
        Mnemonic::Xor if is_register(1) && instruction.op0_register() == instruction.op1_register() => {
            Some(0)
        }
        Mnemonic::Mov => {
            let wide = instruction.op0_register().size() == 8;
            match instruction.op1_kind() {
                OpKind::Immediate32 => Some(u64::from(instruction.immediate32())),
                OpKind::Immediate32to64 if wide => Some(instruction.immediate32to64() as u64),
                OpKind::Immediate64 => Some(instruction.immediate64()),
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
