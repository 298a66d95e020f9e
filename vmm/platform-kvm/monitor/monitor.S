// The monitor: all code of the virtual machine that runs in ring 0.
//
// It has no state of its own. The VMM writes what it wants into fixed pages (src/layout.rs has the same addresses)
// and enters at `resume` or `apply`; traps of application code arrive at `syscall_entry` and `vectors` and leave by
// `out`. Only instructions that a software KVM emulates stand here: iretq, out, invlpg, mov to cr3, wrmsr, but no
// sysretq, swapgs or int3.
//
// There are two sets of entries. What loading a selector does to the base of fs or gs only the processor knows. A KVM that
// leaves these bases to applications copies them out at each exit anyway; for others the second set, the reporting entries, reads them.
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
    .extern SAVED
    .extern REPORTED_BASES
    .extern SELECTORS

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
    .quad syscall_entry_reporting
    .quad compat_entry_reporting
    .quad vectors_reporting

    .text

// Reports the data selectors and the bases of fs and gs to the VMM. rax, rcx and rdx are in memory afterwards.
    .macro report
    mov [SAVED], rax
    mov [SAVED + 8], rcx
    mov [SAVED + 16], rdx
    mov word ptr [SELECTORS], ds
    mov word ptr [SELECTORS + 2], es
    mov word ptr [SELECTORS + 4], fs
    mov word ptr [SELECTORS + 6], gs
    mov ecx, MSR_FS_BASE
    rdmsr
    mov [REPORTED_BASES], eax
    mov [REPORTED_BASES + 4], edx
    mov ecx, MSR_GS_BASE
    rdmsr
    mov [REPORTED_BASES + 8], eax
    mov [REPORTED_BASES + 12], edx
    .endm

// LSTAR. rcx holds the application's rip and r11 its rflags; nothing else has changed.
    .balign 64
    .globl syscall_entry
syscall_entry:
    out PORT_SYSCALL, al
    ud2

    .balign 64
    .globl syscall_entry_reporting
syscall_entry_reporting:
    report
    out PORT_SYSCALL, al
    ud2

// CSTAR: SYSCALL in a 32-bit segment.
    .balign 64
    .globl compat_entry
compat_entry:
    out PORT_COMPAT, al
    ud2

    .balign 64
    .globl compat_entry_reporting
compat_entry_reporting:
    report
    out PORT_COMPAT, al
    ud2

// Clears the selectors that application code may have loaded, and loads the bases of fs and gs, which loading a
// selector may have changed. Clobbers rax, rcx and rdx.
    .macro clear_selectors
    xor eax, eax
    mov ds, eax
    mov es, eax
    mov fs, eax
    mov gs, eax
    mov ecx, MSR_FS_BASE
    mov eax, [BASES]
    mov edx, [BASES + 4]
    wrmsr
    mov ecx, MSR_GS_BASE
    mov eax, [BASES + 8]
    mov edx, [BASES + 12]
    wrmsr
    .endm

// To application code. rsp: its rdx, rcx, rax, then the frame that iretq takes; all other registers are as it wants
// them. What it loaded into selectors lasts until its next trap: that must not depend on what ran in between.
    .balign 64
    .globl resume
resume:
    clear_selectors
    pop rdx
    pop rcx
    pop rax
    iretq

// The same for traps that the application does not know of: nothing is cleared. rsp: the frame; all registers are set.
    .balign 64
    .globl resume_keeping
resume_keeping:
    iretq

// Changes page tables, then does what resume does.
//   r8: number of page-table writes (pairs of address and value) in WRITES
//   r9: number of stale addresses in STALE, for invlpg
//   r10: page-table root, or 0 to keep it (and what is cached of it)
//   rsp: the application's r10, r9, r8, rdx, rcx, rax, then the frame for iretq
    .balign 64
    .globl apply
apply:
    mov rdx, offset WRITES
    test r8, r8
    jz 2f
1:  mov rax, [rdx]
    mov rcx, [rdx + 8]
    mov [rax], rcx
    add rdx, 16
    dec r8
    jnz 1b
2:  mov rdx, offset STALE
    test r9, r9
    jz 4f
3:  mov rax, [rdx]
    invlpg [rax]
    add rdx, 8
    dec r9
    jnz 3b
4:  test r10, r10
    jz 5f
    mov cr3, r10
5:  pop r10
    pop r9
    pop r8
    clear_selectors
    pop rdx
    pop rcx
    pop rax
    iretq

// One entry of 16 bytes for each vector. They all use the same stack (IST 1), so what the processor and these
// entries push lies at fixed addresses: ss, rsp, rflags, cs, rip, error code (0 where the processor has none),
// vector, and for page faults cr2. Then they leave in the way that is given.
    .macro vector_table leave:vararg
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
    \leave
    .set n, n + 1
    .endr
    .balign 16
    .endm

    .balign 64
    .globl vectors
vectors:
    vector_table out PORT_TRAP, al

    .balign 64
leave_reporting:
    report
    out PORT_TRAP, al
    ud2

    .balign 64
    .globl vectors_reporting
vectors_reporting:
    vector_table jmp leave_reporting
