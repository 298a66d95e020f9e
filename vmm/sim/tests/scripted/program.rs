//! The program that every node of the scripted worlds runs, as a list of steps ([`service`]), and a small one that it
//! executes ([`helper`]). An assembler with labels makes them ([`Asm`]).
//!
//! Five processes on each node: a TCP server that acknowledges numbers; a client of the next node that sends them, takes up
//! again what breaks, and runs the helper now and then; one that waits on a futex in shared memory; one that ticks into a
//! pipe under an interval timer; and one that writes what comes out of the pipe to a file. All end on SIGILL if something is
//! not as they expect.

use bloodhound_abi::consts as c;
use bloodhound_abi::table::nr;
use bloodhound_platform::{Arg, Reg, Scripted, Step};

use Reg::{R12, R13, R14, R15, Rax, Rbp, Rbx};

/// What the shared page is mapped at.
const SHARED: u64 = 0x7000_0000;
/// A page that only the program writes, never the kernel, far from others.
const PRIVATE: u64 = 0x7100_0000;
const PORT: u16 = 7000;
const MS: u64 = 1_000_000;
/// The client runs the helper whenever its number is a multiple of this.
const EVERY: u64 = 10;
/// The status that the helper ends with.
pub const HELPER_STATUS: u64 = 7;
const SA_RESTORER: u64 = 0x0400_0000;

/// Places in a program's data, relative to its base.
mod at {
    pub const LISTEN: i64 = 0;
    pub const NEXT: i64 = 16;
    pub const TIME: i64 = 32;
    pub const LIMIT: i64 = 48;
    pub const PIPE: i64 = 64;
    pub const STATUS: i64 = 72;
    pub const BUFFER: i64 = 80;
    pub const NUMBER: i64 = 96;
    pub const ACTION: i64 = 128;
    pub const TIMER: i64 = 160;
    pub const POLL: i64 = 192;
    pub const FILE: i64 = 256;
    pub const HELPER: i64 = 272;
    pub const ARGV: i64 = 304;
    pub const TICK: i64 = 328;
}

/// A place in the code that jumps go to.
#[derive(Clone, Copy)]
struct Label(usize);

/// Steps with labels.
struct Asm {
    base: u64,
    steps: Vec<Step>,
    labels: Vec<Option<usize>>,
}

impl Asm {
    fn new(base: u64) -> Asm {
        Asm { base, steps: Vec::new(), labels: Vec::new() }
    }

    fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.steps.len());
    }

    fn here(&mut self) -> Label {
        let label = self.label();
        self.place(label);
        label
    }

    /// An address in the data.
    fn data(&self, offset: i64) -> u64 {
        Scripted::data(self.base) + offset as u64
    }

    fn step(&mut self, step: Step) {
        self.steps.push(step);
    }

    fn call(&mut self, nr: u64, args: &[Arg]) {
        self.step(Step::syscall(nr, args));
    }

    /// A call that must give this.
    fn must(&mut self, nr: u64, args: &[Arg], result: u64) {
        self.call(nr, args);
        self.step(Step::Expect(Rax, result.into()));
    }

    fn set(&mut self, reg: Reg, value: impl Into<Arg>) {
        self.step(Step::Set(reg, value.into()));
    }

    fn write(&mut self, offset: i64, bytes: &[u8]) {
        let place = self.data(offset);
        self.step(Step::Write(place.into(), bytes.to_vec()));
    }

    fn words(&mut self, offset: i64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(offset, &bytes);
    }

    /// Jumps hold the label's number until [`Asm::finish`].
    fn jump(&mut self, label: Label) {
        self.step(Step::Jump(label.0));
    }

    fn jump_if(&mut self, reg: Reg, value: u64, label: Label) {
        self.step(Step::JumpIf(reg, value.into(), label.0));
    }

    fn jump_unless(&mut self, reg: Reg, value: impl Into<Arg>, label: Label) {
        self.step(Step::JumpUnless(reg, value.into(), label.0));
    }

    /// Forks; the child goes to `child`.
    fn fork(&mut self, child: Label) {
        self.call(nr::fork, &[]);
        self.jump_if(Rax, 0, child);
    }

    fn sleep(&mut self, ns: u64) {
        let time = self.data(at::TIME);
        self.words(at::TIME, &[0, ns]);
        // A signal may break it off.
        self.call(nr::nanosleep, &[time.into(), 0.into()]);
    }

    fn finish(mut self) -> Vec<Step> {
        let to = |number: usize| self.labels[number].expect("a label is placed");
        for step in &mut self.steps {
            match step {
                Step::Jump(n) | Step::JumpIf(_, _, n) | Step::JumpUnless(_, _, n) => *n = to(*n),
                _ => {}
            }
        }
        self.steps
    }
}

fn address(ip: [u8; 4]) -> [u8; 16] {
    let mut out = [0; 16];
    out[0] = c::AF_INET as u8;
    out[2..4].copy_from_slice(&PORT.to_be_bytes());
    out[4..8].copy_from_slice(&ip);
    out
}

/// The helper: prints a line and ends with [`HELPER_STATUS`].
pub fn helper(base: u64) -> Vec<Step> {
    let mut a = Asm::new(base);
    a.write(0, b"helper\n");
    let text = a.data(0);
    a.must(nr::write, &[1.into(), text.into(), 7.into()], 7);
    a.call(nr::exit_group, &[HELPER_STATUS.into()]);
    a.finish()
}

/// The program of a node whose client goes to `next`.
pub fn service(base: u64, next: [u8; 4]) -> Vec<Step> {
    let mut a = Asm::new(base);
    let (client, waiter, ticker, writer) = (a.label(), a.label(), a.label(), a.label());
    setting_up(&mut a, next);
    for child in [client, waiter, ticker, writer] {
        a.fork(child);
    }
    server(&mut a);
    a.place(client);
    the_client(&mut a);
    a.place(waiter);
    the_waiter(&mut a);
    a.place(ticker);
    let handler = the_ticker(&mut a);
    a.place(writer);
    the_writer(&mut a);
    let handler = a.labels[handler.0].expect("a label is placed");
    let (handler, restorer) = (Scripted::address(base, handler), Scripted::address(base, handler + 2));
    let mut steps = a.finish();
    // Only now are the handler's and its restorer's addresses known.
    for step in &mut steps {
        if let Step::Store(_, Arg::Imm(word)) = step {
            match *word {
                HANDLER => *word = handler,
                RESTORER => *word = restorer,
                _ => {}
            }
        }
    }
    steps
}

/// Stand for addresses that are not known yet.
const HANDLER: u64 = 0x4841_4e44_4c45_5200;
const RESTORER: u64 = 0x5245_5354_4f52_4552;

fn setting_up(a: &mut Asm, next: [u8; 4]) {
    a.write(at::LISTEN, &address([0; 4]));
    a.write(at::NEXT, &address(next));
    // struct timeval of SO_RCVTIMEO: 40 ms
    a.words(at::LIMIT, &[0, 40_000]);
    a.write(at::FILE, b"/log\0");
    a.write(at::HELPER, b"/bin/helper\0");
    let (argument, pipe) = (a.data(at::HELPER), a.data(at::PIPE));
    a.words(at::ARGV, &[argument, 0]);
    a.write(at::TICK, b"t");
    let prot = c::PROT_READ | c::PROT_WRITE;
    for (place, kind) in [(SHARED, c::MAP_SHARED), (PRIVATE, c::MAP_PRIVATE)] {
        let flags = kind | c::MAP_ANONYMOUS | c::MAP_FIXED;
        let map = [place.into(), 4096.into(), prot.into(), flags.into(), u64::MAX.into(), 0.into()];
        a.must(nr::mmap, &map, place);
    }
    a.must(nr::pipe2, &[pipe.into(), 0.into()], 0);
    a.call(nr::socket, &[c::AF_INET.into(), c::SOCK_STREAM.into(), 0.into()]);
    a.set(R12, Rax);
    let (listen, one) = (a.data(at::LISTEN), a.data(at::NUMBER));
    a.words(at::NUMBER, &[1]);
    let reuse = [R12.into(), c::SOL_SOCKET.into(), c::SO_REUSEADDR.into(), one.into(), 4.into()];
    a.must(nr::setsockopt, &reuse, 0);
    a.words(at::NUMBER, &[0]);
    a.must(nr::bind, &[R12.into(), listen.into(), 16.into()], 0);
    a.must(nr::listen, &[R12.into(), 8.into()], 0);
}

/// Limits how long reads of the socket in rbx wait: the other side may be gone for good.
fn limit(a: &mut Asm) {
    let time = a.data(at::LIMIT);
    let option = [Rbx.into(), c::SOL_SOCKET.into(), c::SO_RCVTIMEO.into(), time.into(), 16.into()];
    a.must(nr::setsockopt, &option, 0);
}

/// One connection after the other: numbers come one by one, each is sent back.
fn server(a: &mut Asm) {
    let (number, buffer) = (a.data(at::NUMBER), a.data(at::BUFFER));
    let accept = a.here();
    a.call(nr::accept, &[R12.into(), 0.into(), 0.into()]);
    a.set(Rbx, Rax);
    limit(a);
    // The first number may be any.
    let (first, close) = (a.label(), a.label());
    a.set(R13, 0u64);
    let next = a.here();
    a.call(nr::recvfrom, &[Rbx.into(), buffer.into(), 8.into(), c::MSG_WAITALL.into(), 0.into(), 0.into()]);
    // An end, a reset, a time-out, or a connection that broke in the middle of a number.
    a.jump_unless(Rax, 8u64, close);
    a.step(Step::Load(R14, buffer.into()));
    a.jump_if(R13, 0, first);
    a.step(Step::Add(R13, 1u64.into()));
    a.step(Step::Expect(R14, R13.into()));
    a.place(first);
    a.set(R13, R14);
    a.step(Step::Store(number.into(), R13.into()));
    // What other processes have in shared memory is seen.
    a.call(nr::sendto, &[Rbx.into(), number.into(), 8.into(), c::MSG_NOSIGNAL.into(), 0.into(), 0.into()]);
    a.jump_if(Rax, 8, next);
    a.place(close);
    a.must(nr::close, &[Rbx.into()], 0);
    a.jump(accept);
}

/// Sends numbers to the next node, waits for each to come back, stores it in shared memory, and begins again if the
/// connection breaks.
fn the_client(a: &mut Asm) {
    let (next, number, buffer, status) =
        (a.data(at::NEXT), a.data(at::NUMBER), a.data(at::BUFFER), a.data(at::STATUS));
    a.set(R13, 1u64);
    let connect = a.here();
    a.call(nr::socket, &[c::AF_INET.into(), c::SOCK_STREAM.into(), 0.into()]);
    a.set(Rbx, Rax);
    limit(a);
    let (close, child, work) = (a.label(), a.label(), a.label());
    a.call(nr::connect, &[Rbx.into(), next.into(), 16.into()]);
    a.jump_unless(Rax, 0u64, close);
    let send = a.here();
    a.step(Step::Store(number.into(), R13.into()));
    a.call(nr::sendto, &[Rbx.into(), number.into(), 8.into(), c::MSG_NOSIGNAL.into(), 0.into(), 0.into()]);
    a.jump_unless(Rax, 8u64, close);
    a.call(nr::recvfrom, &[Rbx.into(), buffer.into(), 8.into(), c::MSG_WAITALL.into(), 0.into(), 0.into()]);
    a.jump_unless(Rax, 8u64, close);
    a.step(Step::Load(R14, buffer.into()));
    a.step(Step::Expect(R14, R13.into()));
    // For the waiter, in the shared page; a wake for each.
    a.step(Step::Store32(SHARED.into(), R13.into()));
    a.call(nr::futex, &[SHARED.into(), c::FUTEX_WAKE.into(), 1.into()]);
    a.step(Step::Add(R13, 1u64.into()));
    // Every so many numbers the helper runs.
    a.step(Step::Load(R15, PRIVATE.into()));
    a.step(Step::Add(R15, 1u64.into()));
    a.step(Step::Store(PRIVATE.into(), R15.into()));
    a.jump_unless(R15, EVERY, work);
    a.step(Step::Store(PRIVATE.into(), 0u64.into()));
    a.fork(child);
    a.set(Rbp, Rax);
    a.call(nr::wait4, &[u64::MAX.into(), status.into(), 0.into(), 0.into()]);
    a.step(Step::Expect(Rax, Rbp.into()));
    a.step(Step::Load32(R15, status.into()));
    a.step(Step::Expect(R15, (HELPER_STATUS << 8).into()));
    a.place(work);
    a.sleep(MS);
    a.jump(send);
    a.place(close);
    a.must(nr::close, &[Rbx.into()], 0);
    a.sleep(5 * MS);
    a.jump(connect);
    a.place(child);
    let (path, argv) = (a.data(at::HELPER), a.data(at::ARGV));
    a.call(nr::execve, &[path.into(), argv.into(), 0.into()]);
    a.step(Step::Expect(Rax, 0u64.into()));
}

/// Waits until the number in shared memory changes, or some time has passed; it never goes back.
fn the_waiter(a: &mut Asm) {
    let time = a.data(at::TIME);
    a.set(R13, 0u64);
    let again = a.here();
    a.words(at::TIME, &[0, 3 * MS]);
    a.call(nr::futex, &[SHARED.into(), c::FUTEX_WAIT.into(), R13.into(), time.into()]);
    a.step(Step::Load32(R14, SHARED.into()));
    a.set(R13, R14);
    // Each look costs a system call, or this process would never let go.
    a.step(Step::Rdtsc);
    a.jump(again);
}

/// An interval timer sends a signal; after each the handler's count is in memory, and a byte goes into the pipe. Returns
/// the handler's label; its restorer follows two steps behind it.
fn the_ticker(a: &mut Asm) -> Label {
    let (action, timer, number) = (a.data(at::ACTION), a.data(at::TIMER), a.data(at::NUMBER));
    let (pipe, tick) = (a.data(at::PIPE), a.data(at::TICK));
    let handler = a.label();
    for (index, word) in [HANDLER, SA_RESTORER, RESTORER, 0].into_iter().enumerate() {
        a.step(Step::Store((action + 8 * index as u64).into(), word.into()));
    }
    a.must(nr::rt_sigaction, &[c::SIGALRM.into(), action.into(), 0.into(), 8.into()], 0);
    // Every 7 ms.
    a.words(at::TIMER, &[0, 7_000, 0, 7_000]);
    a.must(nr::setitimer, &[0.into(), timer.into(), 0.into()], 0);
    a.words(at::NUMBER, &[0]);
    a.set(R13, 0u64);
    let again = a.here();
    a.call(nr::pause, &[]);
    a.step(Step::Load(R14, number.into()));
    a.step(Step::Add(R13, 1u64.into()));
    a.step(Step::Expect(R14, R13.into()));
    a.step(Step::Load32(Rbx, (pipe + 4).into()));
    a.must(nr::write, &[Rbx.into(), tick.into(), 1.into()], 1);
    a.jump(again);
    // The handler has the registers of what it interrupts, and gives them back.
    a.place(handler);
    a.step(Step::Store(number.into(), Arg::Off(R13, 1)));
    // The return address is popped, as `ret` does.
    a.step(Step::Add(Reg::Rsp, 8u64.into()));
    a.call(nr::rt_sigreturn, &[]);
    handler
}

/// Waits with poll(2) and moves bytes from the pipe to the end of a file, which fsync(2) makes durable.
fn the_writer(a: &mut Asm) {
    let (file, pipe, buffer, poll) =
        (a.data(at::FILE), a.data(at::PIPE), a.data(at::BUFFER), a.data(at::POLL));
    let flags = c::O_CREAT | c::O_WRONLY | c::O_APPEND;
    a.call(nr::open, &[file.into(), flags.into(), 0o644.into()]);
    a.set(R12, Rax);
    a.step(Step::Load32(Rbx, pipe.into()));
    let again = a.here();
    // struct pollfd { int fd; short events, revents; }
    a.step(Step::Store32(poll.into(), Rbx.into()));
    a.step(Step::Store32((poll + 4).into(), 1u64.into()));
    a.call(nr::poll, &[poll.into(), 1.into(), 20.into()]);
    a.jump_if(Rax, 0, again);
    a.must(nr::read, &[Rbx.into(), buffer.into(), 1.into()], 1);
    a.step(Step::ExpectBytes(buffer.into(), b"t".to_vec()));
    a.must(nr::write, &[R12.into(), buffer.into(), 1.into()], 1);
    a.must(nr::fsync, &[R12.into()], 0);
    a.jump(again);
}
