//! A container before it runs, to which questions are put: [`Container`]. Its kernel, file systems and names are those that a run would
//! begin with; each question is put to a copy.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::table::nr;
use bloodhound_decisions::Decisions;
use bloodhound_kernel::asking::{SCRATCH, SCRATCH_SIZE};
use bloodhound_kernel::ctx::Outside;
use bloodhound_kernel::dispatch::Outcome;
use bloodhound_kernel::exec::Program;
use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::Node;
use bloodhound_sim::Scenario;
use bloodhound_vfs::host::HostBase;

use crate::host;
use crate::session::Failure;

/// AT_FDCWD.
const HERE: u64 = -100_i64 as u64;
/// Where each pointer argument has its bytes, and how many.
const SLOT: u64 = SCRATCH_SIZE / 8;
/// Where files are read to.
const READ_AT: u64 = SCRATCH + 6 * SLOT;
/// Larger programs are not read.
const LARGEST: u64 = 512 << 20;

/// See the module's text.
pub struct Container {
    node: Node,
    base: HostBase,
    tid: Tid,
    /// What the container runs.
    pub program: Program,
}

/// The containers of a scenario, by service name.
///
/// # Errors
/// What cannot be set up.
pub fn all(scenario: &Scenario, base: &HostBase) -> Result<Vec<(String, Container)>, Failure> {
    let mut base = base.clone();
    let world = host::world(scenario, &mut base, Decisions::seeded(0)).map_err(Failure::environment)?;
    let mut containers = Vec::new();
    for service in &scenario.services {
        let mut node = world.machine_of(service.node).clone();
        let id = world.room(service.node).container;
        let mut base = base.clone();
        let mut decisions = Decisions::seeded(0);
        let outside = &mut Outside::new(&mut base, &mut decisions);
        let tid = node.spawn_asker(id, &service.program, outside).map_err(|errno| {
            Failure::environment(format!("service {}: no process can be made: {errno}", service.name))
        })?;
        containers
            .push((service.name.clone(), Container { node, base, tid, program: service.program.clone() }));
    }
    Ok(containers)
}

/// A copy of the container's node that answers one question, of several calls perhaps.
pub struct Copy<'a> {
    node: Node,
    base: &'a mut HostBase,
    decisions: Decisions,
    tid: Tid,
}

impl Container {
    /// A copy to ask.
    pub fn copy(&mut self) -> Copy<'_> {
        Copy { node: self.node.clone(), base: &mut self.base, decisions: Decisions::seeded(0), tid: self.tid }
    }

    /// The content of a file, as the container's program sees it.
    ///
    /// # Errors
    /// Those of open(2) and read(2); EFBIG for one that is too large to be a program.
    pub fn read(&mut self, path: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut copy = self.copy();
        let fd = copy.open(path, c::O_RDONLY)?;
        let size = copy.call(nr::lseek, &[fd, 0, c::SEEK_END])?;
        if size > LARGEST {
            return Err(Errno::EFBIG);
        }
        copy.call(nr::lseek, &[fd, 0, c::SEEK_SET])?;
        let mut bytes = Vec::with_capacity(size as usize);
        loop {
            let n = copy.call(nr::read, &[fd, READ_AT, 2 * SLOT])? as usize;
            if n == 0 {
                return Ok(bytes);
            }
            bytes.extend(copy.get(READ_AT, n)?);
        }
    }

    /// Where a path leads, without links.
    pub fn real_path(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        let mut copy = self.copy();
        let fd = copy.open(path, c::O_RDONLY).ok()?;
        let at = copy.put(0, format!("/proc/self/fd/{fd}\0").as_bytes()).ok()?;
        let n = copy.call(nr::readlink, &[at, READ_AT, 4096]).ok()? as usize;
        copy.get(READ_AT, n).ok()
    }

    /// Whether a path leads somewhere.
    ///
    /// # Errors
    /// Those of stat(2).
    pub fn look_up(&mut self, path: &[u8]) -> Result<(), Errno> {
        let mut copy = self.copy();
        let at = copy.put(0, &[path, b"\0"].concat())?;
        copy.call(nr::newfstatat, &[HERE, at, READ_AT, 0]).map(drop)
    }

    /// Whether a file may be executed.
    pub fn is_executable(&mut self, path: &[u8]) -> bool {
        let mut copy = self.copy();
        let Ok(at) = copy.put(0, &[path, b"\0"].concat()) else { return false };
        copy.call(nr::newfstatat, &[HERE, at, READ_AT, 0]).is_ok()
            && copy.call(nr::faccessat2, &[HERE, at, 1, c::AT_EACCESS]).is_ok()
    }

    /// The names in a directory, in order.
    ///
    /// # Errors
    /// Those of open(2) and getdents64(2).
    pub fn names(&mut self, path: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
        let mut copy = self.copy();
        let fd = copy.open(path, c::O_RDONLY | c::O_DIRECTORY)?;
        let mut names = Vec::new();
        loop {
            let n = copy.call(nr::getdents64, &[fd, READ_AT, 2 * SLOT])? as usize;
            if n == 0 {
                names.sort();
                return Ok(names);
            }
            // struct linux_dirent64: number and offset of 8 bytes, length of 2, type of 1, the name.
            let bytes = copy.get(READ_AT, n)?;
            let mut rest = &bytes[..];
            while rest.len() > 19 {
                let length = usize::from(u16::from_le_bytes([rest[16], rest[17]]));
                let name = rest[19..length].split(|b| *b == 0).next().unwrap_or_default();
                names.push(name.to_vec());
                rest = &rest[length..];
            }
        }
    }
}

impl Copy<'_> {
    /// Makes a call; what comes of it.
    pub fn ask(&mut self, nr: u64, args: &[u64]) -> Outcome {
        self.node.ask(self.tid, nr, args, &mut Outside::new(self.base, &mut self.decisions))
    }

    /// Makes a call that ends at once; one that sleeps is no answer.
    pub fn call(&mut self, nr: u64, args: &[u64]) -> Result<u64, Errno> {
        match self.ask(nr, args) {
            Outcome::Done(value) => result(value),
            _ => Err(Errno::EAGAIN),
        }
    }

    /// Puts bytes where the n-th pointer argument leads; its address.
    pub fn put(&mut self, n: usize, bytes: &[u8]) -> Result<u64, Errno> {
        let at = SCRATCH + n as u64 * SLOT;
        if bytes.len() as u64 > SLOT {
            return Err(Errno::ENAMETOOLONG);
        }
        self.node.put(self.tid, at, bytes, &mut Outside::new(self.base, &mut self.decisions))?;
        Ok(at)
    }

    /// Opens a path.
    pub fn open(&mut self, path: &[u8], flags: u64) -> Result<u64, Errno> {
        let at = self.put(0, &[path, b"\0"].concat())?;
        self.call(nr::openat, &[HERE, at, flags, 0o600])
    }

    /// Reads memory.
    pub fn get(&mut self, at: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut out = vec![0; len];
        self.node.get(self.tid, at, &mut out, &mut Outside::new(self.base, &mut self.decisions))?;
        Ok(out)
    }
}

/// What rax says.
pub fn result(value: u64) -> Result<u64, Errno> {
    match value as i64 {
        negative if (-4095..0).contains(&negative) => Err(Errno(negative.unsigned_abs() as u16)),
        _ => Ok(value),
    }
}

/// The node of a scenario's only service.
pub fn only(scenario: &Scenario, base: &HostBase) -> Result<Container, Failure> {
    let mut containers = all(scenario, base)?;
    let (_, container) = containers.pop().ok_or_else(|| Failure::environment("there is no container"))?;
    Ok(container)
}
