//! The init of containers with `init: true`: process 1, which reaps children that it did not make and hands signals on to the
//! service's command, as docker-init (tini) does. Programs of `bloodhound exec` have one above them as well, which never runs
//! ([`crate::node::Node::spawn_below_init`]).
//!
//! It is a program like any other, made here: [`image`] is its file, [`PATH`] where engines put it. The kernel makes the service's
//! command its child ([`crate::node::Node::spawn_with_init`]), whose number it has in rbx when it begins.

/// Where engines put their init.
pub const PATH: &[u8] = b"/sbin/docker-init";

/// Where its only segment lies, and the first instruction in it: behind the headers.
const BASE: u64 = 0x40_0000;
const HEADERS: u64 = 64 + 56;

/// All signals are blocked; then, over and over: wait4(-1, WNOHANG) until there is nobody to reap, where the end of the command is
/// the end of init, with its exit code or 128 and the number of the signal that killed it; rt_sigtimedwait of all signals without
/// a timeout; kill(2) of the command with any signal but SIGCHLD.
#[rustfmt::skip]
const CODE: &[u8] = &[
    0x48, 0x81, 0xec, 0x00, 0x01, 0x00, 0x00,       // _start: sub rsp, 256
    0x48, 0xc7, 0x04, 0x24, 0xff, 0xff, 0xff, 0xff, //   mov qword ptr [rsp], -1
    0xb8, 0x0e, 0x00, 0x00, 0x00,                   //   mov eax, 14 (rt_sigprocmask)
    0xbf, 0x02, 0x00, 0x00, 0x00,                   //   mov edi, SIG_SETMASK
    0x48, 0x89, 0xe6,                               //   mov rsi, rsp
    0x31, 0xd2,                                     //   xor edx, edx
    0x41, 0xba, 0x08, 0x00, 0x00, 0x00,             //   mov r10d, 8
    0x0f, 0x05,                                     //   syscall
    0xb8, 0x3d, 0x00, 0x00, 0x00,                   // reap: mov eax, 61 (wait4)
    0x48, 0xc7, 0xc7, 0xff, 0xff, 0xff, 0xff,       //   mov rdi, -1
    0x48, 0x8d, 0x74, 0x24, 0x08,                   //   lea rsi, [rsp + 8]
    0xba, 0x01, 0x00, 0x00, 0x00,                   //   mov edx, WNOHANG
    0x45, 0x31, 0xd2,                               //   xor r10d, r10d
    0x0f, 0x05,                                     //   syscall
    0x85, 0xc0,                                     //   test eax, eax
    0x7e, 0x27,                                     //   jle sleep
    0x39, 0xd8,                                     //   cmp eax, ebx
    0x75, 0xdd,                                     //   jne reap
    0x8b, 0x7c, 0x24, 0x08,                         //   mov edi, [rsp + 8]
    0x89, 0xf8,                                     //   mov eax, edi
    0x83, 0xe0, 0x7f,                               //   and eax, 0x7f
    0x74, 0x08,                                     //   jz exited
    0x8d, 0xb8, 0x80, 0x00, 0x00, 0x00,             //   lea edi, [rax + 128]
    0xeb, 0x09,                                     //   jmp end
    0xc1, 0xef, 0x08,                               // exited: shr edi, 8
    0x81, 0xe7, 0xff, 0x00, 0x00, 0x00,             //   and edi, 0xff
    0xb8, 0xe7, 0x00, 0x00, 0x00,                   // end: mov eax, 231 (exit_group)
    0x0f, 0x05,                                     //   syscall
    0xb8, 0x80, 0x00, 0x00, 0x00,                   // sleep: mov eax, 128 (rt_sigtimedwait)
    0x48, 0x89, 0xe7,                               //   mov rdi, rsp
    0x48, 0x8d, 0x74, 0x24, 0x10,                   //   lea rsi, [rsp + 16]
    0x31, 0xd2,                                     //   xor edx, edx
    0x41, 0xba, 0x08, 0x00, 0x00, 0x00,             //   mov r10d, 8
    0x0f, 0x05,                                     //   syscall
    0x83, 0xf8, 0x11,                               //   cmp eax, SIGCHLD
    0x74, 0x9e,                                     //   je reap
    0x85, 0xc0,                                     //   test eax, eax
    0x78, 0xe0,                                     //   js sleep
    0x89, 0xc6,                                     //   mov esi, eax
    0x89, 0xdf,                                     //   mov edi, ebx
    0xb8, 0x3e, 0x00, 0x00, 0x00,                   //   mov eax, 62 (kill)
    0x0f, 0x05,                                     //   syscall
    0xeb, 0xd3,                                     //   jmp sleep
];

/// The file: an ELF program of one segment that is read and executed.
pub fn image() -> Vec<u8> {
    let size = HEADERS + CODE.len() as u64;
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // ET_EXEC, EM_X86_64, EV_CURRENT; entry; program headers behind this one, no sections; sizes and counts.
    out.extend(2u16.to_le_bytes());
    out.extend(62u16.to_le_bytes());
    out.extend(1u32.to_le_bytes());
    for word in [BASE + HEADERS, 64, 0] {
        out.extend(word.to_le_bytes());
    }
    out.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 1, 64, 0, 0] {
        out.extend(half.to_le_bytes());
    }
    // PT_LOAD, PF_R | PF_X; offset, addresses, sizes, alignment.
    out.extend(1u32.to_le_bytes());
    out.extend(5u32.to_le_bytes());
    for word in [0, BASE, BASE, size, size, 4096] {
        out.extend(word.to_le_bytes());
    }
    out.extend(CODE);
    out
}
