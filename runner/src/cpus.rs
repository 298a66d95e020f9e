//! Processors of this machine: which ones this process may use ([`allowed`], [`jobs`]), and which one a thread with a
//! platform runs on ([`mine`]); and the threads of workers ([`spawn`]).
//!
//! A tracer and its stubs must run on the same processor, or each trap wakes an idle one; and two tracers should not run
//! on one. So each thread takes a processor that no other Bloodhound has. A processor is taken by binding a Unix socket
//! to an abstract name made of its number (unix(7)): such names need no directory that all users can write to safely,
//! exist in containers with nothing but read-only files, and are free again when their owner ends, however it ends.
//! They are per network namespace, so containers do not see each other's: so the search begins at a random one.

use std::cell::OnceCell;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::thread::JoinHandle;

use crate::session::Failure;

/// More Bloodhounds than this on one processor are not counted any more.
const LAYERS: usize = 64;
/// Processors that are known at all: Linux's largest NR_CPUS.
const MOST: usize = 8192;

struct Allowed {
    cpus: Vec<usize>,
    jobs: usize,
}

static ALLOWED: OnceLock<Allowed> = OnceLock::new();

thread_local! {
    static MINE: OnceCell<Option<Claim>> = const { OnceCell::new() };
}

fn read() -> &'static Allowed {
    ALLOWED.get_or_init(|| Allowed {
        cpus: affinity(),
        // The processors that are left, or fewer where a control group has a quota of their time.
        jobs: std::thread::available_parallelism().map_or(1, usize::from).max(1),
    })
}

/// Looks what this process may use. At its start, before any thread is bound to a processor.
pub fn init() {
    read();
}

/// The processors that this process may use, by rising number: a container or taskset(1) may leave it any.
pub fn allowed() -> &'static [usize] {
    &read().cpus
}

/// How many threads can compute at the same time.
pub fn jobs() -> usize {
    read().jobs
}

/// The processor for platforms of the calling thread, taken at the first call and kept until the thread ends. `None` if
/// nothing is known about processors.
///
/// The thread may run on all of them again until a platform binds it: what the platform starts before (its watchdog) is
/// not bound.
pub fn mine() -> Option<usize> {
    bind(allowed());
    MINE.with(|mine| mine.get_or_init(|| claim(allowed())).as_ref().map(|claim| claim.cpu))
}

/// Starts workers on threads of their own, each with what `work` makes for it: as many as asked for, or as the system lets be.
///
/// # Errors
/// Not one can be started.
pub fn spawn<W: FnOnce() + Send + 'static>(
    jobs: usize,
    work: impl Fn() -> W,
) -> Result<Vec<JoinHandle<()>>, Failure> {
    let mut threads = Vec::new();
    for job in 0..jobs {
        match std::thread::Builder::new().name(format!("worker-{job}")).spawn(work()) {
            Ok(thread) => threads.push(thread),
            Err(error) if threads.is_empty() => {
                return Err(Failure::environment(format!("starting a thread: {error}")));
            }
            // Those that are there do the work.
            Err(_) => break,
        }
    }
    Ok(threads)
}

/// A processor as long as it is ours.
#[derive(Debug)]
struct Claim {
    cpu: usize,
    /// What others see; `None` if nothing could be bound.
    _socket: Option<OwnedFd>,
}

/// Takes the processor that the fewest others have: none, as long as there is one.
fn claim(cpus: &[usize]) -> Option<Claim> {
    if cpus.is_empty() {
        return None;
    }
    // Any beginning is as good where the names are seen; where they are not (another container) this makes it unlikely
    // that all take the same.
    let first = RandomState::new().hash_one(0) as usize % cpus.len();
    let order = || cpus[first..].iter().chain(&cpus[..first]);
    for layer in 0..LAYERS {
        for cpu in order() {
            match bind_name(&format!("bloodhound/processor/{cpu}/{layer}")) {
                Ok(socket) => return Some(Claim { cpu: *cpu, _socket: Some(socket) }),
                Err(libc::EADDRINUSE) => {}
                // No such sockets here (seccomp, another kernel's emulation): any processor is better than none.
                Err(_) => return order().next().map(|cpu| Claim { cpu: *cpu, _socket: None }),
            }
        }
    }
    order().next().map(|cpu| Claim { cpu: *cpu, _socket: None })
}

/// A socket bound to an abstract name; the errno if that fails.
fn bind_name(name: &str) -> Result<OwnedFd, i32> {
    let errno = || std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    // SAFETY: all zero is a valid sockaddr_un; the name is shorter than its field and begins behind a NUL byte, which makes
    // it abstract; the length covers what was written. The descriptor is new and owned by nobody else.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(errno());
        }
        let socket = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        match libc::bind(fd, (&raw const address).cast(), length as libc::socklen_t) {
            0 => Ok(socket),
            _ => Err(errno()),
        }
    }
}

/// A set of processors as sched_setaffinity(2) takes it: a bit each.
type Set = [u64; MOST / 64];

/// The processors that the calling thread may use.
fn affinity() -> Vec<usize> {
    let mut set: Set = [0; MOST / 64];
    // SAFETY: the call writes at most the size that it gets.
    let done = unsafe { libc::sched_getaffinity(0, size_of::<Set>(), set.as_mut_ptr().cast()) };
    if done != 0 {
        return Vec::new();
    }
    (0..MOST).filter(|cpu| set[cpu / 64] >> (cpu % 64) & 1 == 1).collect()
}

/// Lets the calling thread run on these. That it cannot only makes it slower.
fn bind(cpus: &[usize]) {
    let mut set: Set = [0; MOST / 64];
    for cpu in cpus {
        set[cpu / 64] |= 1 << (cpu % 64);
    }
    if !cpus.is_empty() {
        // SAFETY: the call reads the size that it gets.
        unsafe { libc::sched_setaffinity(0, size_of::<Set>(), set.as_ptr().cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of processors that no machine has, so that the tests neither see nor disturb anybody.
    fn fictitious(count: usize) -> Vec<usize> {
        let first = MOST + (std::process::id() as usize) * 16;
        (first..first + count).collect()
    }

    #[test]
    fn each_claim_gets_a_processor_of_its_own_until_all_are_taken() {
        let cpus = fictitious(3);
        let claims: Vec<Claim> = (0..3).map(|_| claim(&cpus).expect("a processor")).collect();
        let mut taken: Vec<usize> = claims.iter().map(|c| c.cpu).collect();
        taken.sort_unstable();
        assert_eq!(taken, cpus);
        // The next ones share, each with another one.
        let more: Vec<Claim> = (0..3).map(|_| claim(&cpus).expect("a processor")).collect();
        let mut shared: Vec<usize> = more.iter().map(|c| c.cpu).collect();
        shared.sort_unstable();
        assert_eq!(shared, cpus);
        // What is given back is taken first.
        let free = claims[1].cpu;
        drop((claims.into_iter().nth(1), more));
        assert!(cpus.contains(&claim(&cpus).expect("a processor").cpu), "{free} or its neighbours");
        assert!(claim(&[]).is_none());
    }

    #[test]
    fn a_thread_keeps_its_processor_and_threads_differ_while_there_are_some() {
        init();
        assert!(!allowed().is_empty() && jobs() >= 1 && jobs() <= allowed().len());
        let (mine_first, mine_again) = (mine(), mine());
        assert!(mine_first.is_some_and(|cpu| allowed().contains(&cpu)));
        assert_eq!(mine_first, mine_again);
    }

    #[test]
    fn binding_one_thread_leaves_what_is_allowed_as_it_was() {
        init();
        let before = allowed().to_vec();
        let thread = std::thread::spawn(|| {
            bind(&allowed()[..1]);
            (affinity(), mine(), affinity())
        });
        let (bound, _, free) = thread.join().expect("a thread");
        assert_eq!(bound, before[..1]);
        assert_eq!(free, before, "until a platform binds it");
        assert_eq!(allowed(), before);
    }
}
