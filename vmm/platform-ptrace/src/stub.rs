//! What a stub process contains besides the application: one page of code, a few pages of commands that the
//! tracer writes and the stub only reads, and a seccomp filter.
//!
//! The code can do four things: one system call ([`SYSCALL`]), a list of them ([`BATCH`]), and set what ptrace does not:
//! the ID flag ([`FLAGS`]) and bases of fs and gs in the kernel's half ([`BASES`]). All end at an `int3`. It runs under PTRACE_CONT, the only time when a stub's system calls reach the host; the application
//! runs under PTRACE_SYSEMU, where none does, from whatever address it is made.

use bloodhound_platform::GUEST_TOP;

/// Where the code page is: the first address above what applications may map.
pub(crate) const CODE: u64 = GUEST_TOP;
/// Where the command pages are.
pub(crate) const COMMANDS: u64 = CODE + 0x1000;
/// Size of the command pages.
pub(crate) const COMMAND_BYTES: usize = 0x4000;
/// First address behind the stub's own pages.
pub(crate) const END: u64 = COMMANDS + COMMAND_BYTES as u64;
/// End of the user half with four-level page tables: Linux's TASK_SIZE_MAX.
pub(crate) const TASK_SIZE: u64 = 0x7fff_ffff_f000;
/// File descriptors in a stub: the frame arena and the command file.
pub(crate) const ARENA_FD: u64 = 0;
/// See [`ARENA_FD`].
pub(crate) const COMMAND_FD: u64 = 1;
/// One command: the call's number and six arguments.
pub(crate) const COMMAND_WORDS: usize = 7;
/// Commands per batch.
pub(crate) const BATCH_MAX: usize = COMMAND_BYTES / (COMMAND_WORDS * 8);

/// `syscall; int3`: one call, everything in registers.
pub(crate) const SYSCALL: u64 = 0;
/// `popfq; int3`: all of rflags from where rsp points.
pub(crate) const FLAGS: u64 = 3;
/// `wrfsbase rbx; wrgsbase rbp; int3`: only for hosts where applications have these instructions.
pub(crate) const BASES: u64 = 5;
/// The loop: rbx points at commands, rbp counts them. At its end rbp says how many were not done; if that is
/// not zero, rax is the error of the first of them.
pub(crate) const BATCH: u64 = 16;

std::arch::global_asm!(
    ".pushsection .rodata.bloodhound_stub, \"a\", @progbits",
    ".globl bloodhound_stub_begin",
    ".globl bloodhound_stub_end",
    "bloodhound_stub_begin:",
    // SYSCALL
    "    syscall",
    "    int3",
    // FLAGS
    "    popfq",
    "    int3",
    // BASES
    "    wrfsbase rbx",
    "    wrgsbase rbp",
    "    int3",
    // BATCH
    "2:  test rbp, rbp",
    "    jz 3f",
    "    mov rax, [rbx]",
    "    mov rdi, [rbx + 8]",
    "    mov rsi, [rbx + 16]",
    "    mov rdx, [rbx + 24]",
    "    mov r10, [rbx + 32]",
    "    mov r8, [rbx + 40]",
    "    mov r9, [rbx + 48]",
    "    syscall",
    // -4095..=-1 are errors.
    "    cmp rax, -4095",
    "    jae 3f",
    "    add rbx, 56",
    "    dec rbp",
    "    jmp 2b",
    "3:  int3",
    "bloodhound_stub_end:",
    ".popsection",
);

unsafe extern "C" {
    static bloodhound_stub_begin: u8;
    static bloodhound_stub_end: u8;
}

/// The code, position-independent.
pub(crate) fn code() -> &'static [u8] {
    let (begin, end) = (&raw const bloodhound_stub_begin, &raw const bloodhound_stub_end);
    // SAFETY: both symbols are defined above, in one section, in this order; the bytes between are constant.
    unsafe { std::slice::from_raw_parts(begin, end.offset_from_unsigned(begin)) }
}

/// Whether an address is in the stub's own pages.
pub(crate) fn contains(addr: u64) -> bool {
    (CODE..END).contains(&addr)
}

// Offsets in `struct seccomp_data` (linux/seccomp.h).
const DATA_NR: u32 = 0;
const DATA_ARCH: u32 = 4;
const DATA_IP_LOW: u32 = 8;
const DATA_IP_HIGH: u32 = 12;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

/// A seccomp filter which allows `calls`, from the stub's code page only, and kills the process for anything
/// else. The vsyscall page, whose calls PTRACE_SYSEMU does not catch, raises SIGSYS.
pub(crate) fn filter(calls: &[i64]) -> Vec<libc::sock_filter> {
    let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |offset| op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let equal = |k, jt, jf| op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
    let at_least = |k, jt, jf| op(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, jt, jf, k);
    let ret = |k| op(libc::BPF_RET | libc::BPF_K, 0, 0, k);
    let mut out = vec![
        load(DATA_ARCH),
        equal(AUDIT_ARCH_X86_64, 1, 0),
        ret(libc::SECCOMP_RET_KILL_PROCESS),
        load(DATA_IP_HIGH),
        equal(u32::MAX, 0, 1),
        ret(libc::SECCOMP_RET_TRAP),
        equal((CODE >> 32) as u32, 1, 0),
        ret(libc::SECCOMP_RET_KILL_PROCESS),
        load(DATA_IP_LOW),
        at_least(CODE as u32, 0, 1),
        at_least(CODE as u32 + 0x1000, 0, 1),
        ret(libc::SECCOMP_RET_KILL_PROCESS),
        load(DATA_NR),
    ];
    for &call in calls {
        out.push(equal(call as u32, 0, 1));
        out.push(ret(libc::SECCOMP_RET_ALLOW));
    }
    out.push(ret(libc::SECCOMP_RET_KILL_PROCESS));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_laid_out_as_the_constants_say() {
        let code = code();
        assert_eq!(code[..3], [0x0f, 0x05, 0xcc], "syscall; int3");
        assert_eq!(code[FLAGS as usize..][..2], [0x9d, 0xcc], "popfq; int3");
        assert_eq!(code[BASES as usize..][..5], [0xf3, 0x48, 0x0f, 0xae, 0xd3], "wrfsbase rbx");
        assert_eq!(code[BATCH as usize..][..3], [0x48, 0x85, 0xed], "test rbp, rbp");
        assert_eq!(code.last(), Some(&0xcc));
        assert!(code.len() < 4096);
    }

    /// A little interpreter of classic BPF, enough for the filter.
    fn judge(program: &[libc::sock_filter], arch: u32, ip: u64, nr: u32) -> u32 {
        let (mut acc, mut pc) = (0, 0);
        loop {
            let op = program[pc];
            pc += 1;
            let taken = match u32::from(op.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    acc = match op.k {
                        DATA_NR => nr,
                        DATA_ARCH => arch,
                        DATA_IP_LOW => ip as u32,
                        DATA_IP_HIGH => (ip >> 32) as u32,
                        other => panic!("load of {other}"),
                    };
                    continue;
                }
                code if code == libc::BPF_RET | libc::BPF_K => return op.k,
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => acc == op.k,
                code if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => acc >= op.k,
                other => panic!("op {other:#x}"),
            };
            pc += usize::from(if taken { op.jt } else { op.jf });
        }
    }

    #[test]
    fn filter_allows_the_named_calls_from_the_code_page_only() {
        let program = filter(&[libc::SYS_mmap, libc::SYS_munmap]);
        let at = |ip, nr: i64| judge(&program, AUDIT_ARCH_X86_64, ip, nr as u32);
        assert_eq!(at(CODE + 2, libc::SYS_mmap), libc::SECCOMP_RET_ALLOW);
        assert_eq!(at(CODE + 0xfff, libc::SYS_munmap), libc::SECCOMP_RET_ALLOW);
        for (ip, nr) in [
            (CODE + 2, libc::SYS_write),
            (CODE + 2, libc::SYS_mmap | 0x4000_0000),
            (CODE - 1, libc::SYS_mmap),
            (CODE + 0x1000, libc::SYS_mmap),
            (CODE - (1 << 32), libc::SYS_mmap),
            (0x40_0000, libc::SYS_mmap),
            (0x40_0000, libc::SYS_exit_group),
        ] {
            assert_eq!(at(ip, nr), libc::SECCOMP_RET_KILL_PROCESS, "{ip:#x} {nr}");
        }
        assert_eq!(at(0xffff_ffff_ff60_0400, libc::SYS_time), libc::SECCOMP_RET_TRAP);
        let compat = judge(&program, 0x4000_0003, CODE + 2, libc::SYS_mmap as u32);
        assert_eq!(compat, libc::SECCOMP_RET_KILL_PROCESS);
    }
}
