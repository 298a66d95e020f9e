// The monitor: all code of the virtual machine that runs in ring 0.
//
// It has no state of its own. The VMM writes what it wants into fixed pages (src/layout.rs has the same addresses)
// and enters at `resume` or `apply`; traps of application code arrive at `syscall_entry` and `vectors` and leave by
// `out`. Only instructions that a software KVM emulates stand here: iretq, out, invlpg, mov to cr3, wrmsr, but no
// sysretq, swapgs or int3.
//
// linux-loader places it at 64 KiB of guest-physical memory.

    .intel_syntax noprefix

    // Ports, one for each way out.
    .equ PORT_SYSCALL, 0x10
    .equ PORT_TRAP, 0x11
    .equ PORT_COMPAT, 0x12

    .equ MSR_FS_BASE, 0xc0000100
    .equ MSR_GS_BASE, 0xc0000101

    // Filled by the linker script.
    .extern WRITES
    .extern STALE
    .extern BASES
    .extern ZERO

    // What the VMM finds its way by: the entry of the ELF file is this table.
    .section .entry, "a"
    .globl entries
entries:
    .quad syscall_entry
    .quad resume
    .quad resume_keeping
    .quad apply
    .quad compat_entry
    .quad vectors

    .text

// LSTAR. rcx holds the application's rip and r11 its rflags; nothing else has changed.
    .balign 64
    .globl syscall_entry
syscall_entry:
    out PORT_SYSCALL, al
    ud2

// CSTAR: SYSCALL in a 32-bit segment.
    .balign 64
    .globl compat_entry
compat_entry:
    out PORT_COMPAT, al
    ud2

// To application code. rsp: the frame that iretq takes; all other registers are the application's. Selectors that the
// application loaded last until its next trap, so the usual way clears them; the other keeps them, for traps that it
// does not know of.
    .balign 64
    .globl resume
resume:
    mov ds, word ptr [ZERO]
    mov es, word ptr [ZERO]
    .globl resume_keeping
resume_keeping:
    iretq

// Changes page tables and what belongs to a task, then goes to application code.
//   rcx: number of page-table writes (pairs of address and value) in WRITES
//   rdx: number of stale addresses in STALE, for invlpg
//   rax: page-table root, or 0 to keep it (and what is cached of it)
//   rsi: whether to load the bases of fs and gs from BASES
//   rsp: the application's r15, rbx, rdi, rsi, rdx, rcx, rax, then the frame for iretq
    .balign 64
    .globl apply
apply:
    mov rdi, offset WRITES
    test rcx, rcx
    jz 2f
1:  mov rbx, [rdi]
    mov r15, [rdi + 8]
    mov [rbx], r15
    add rdi, 16
    dec rcx
    jnz 1b
2:  mov rdi, offset STALE
    test rdx, rdx
    jz 4f
3:  mov rbx, [rdi]
    invlpg [rbx]
    add rdi, 8
    dec rdx
    jnz 3b
4:  test rax, rax
    jz 5f
    mov cr3, rax
5:  test rsi, rsi
    jz 6f
    // Selectors first: on some processors loading one clears the base.
    xor eax, eax
    mov fs, eax
    mov gs, eax
    mov rdi, offset BASES
    mov ecx, MSR_FS_BASE
    mov eax, [rdi]
    mov edx, [rdi + 4]
    wrmsr
    mov ecx, MSR_GS_BASE
    mov eax, [rdi + 8]
    mov edx, [rdi + 12]
    wrmsr
6:
    pop r15
    pop rbx
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
    iretq

// One entry of 16 bytes for each vector. They all use the same stack (IST 1), so what the processor and these
// entries push lies at fixed addresses: ss, rsp, rflags, cs, rip, error code (0 where the processor has none),
// vector, and for page faults cr2.
    .balign 64
    .globl vectors
vectors:
    .set n, 0
    .rept 256
    .balign 16
    .if n == 8 || (n >= 10 && n <= 14) || n == 17 || n == 21 || n == 29 || n == 30
    .else
    push 0
    .endif
    push n
    .if n == 14
    push rax
    mov rax, cr2
    xchg rax, [rsp]
    .endif
    out PORT_TRAP, al
    .set n, n + 1
    .endr
    .balign 16
