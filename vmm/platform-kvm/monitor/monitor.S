// The monitor: all code of the virtual machine that runs in ring 0.
//
// It keeps no state between two runs. The VMM writes what the monitor is to do into fixed pages (src/layout.rs has the
// same addresses) and starts it at `resume`, `resume_keeping` or `apply`, all of which end in application code. When
// application code traps, the processor enters the monitor at `syscall_entry`, `compat_entry` or in `vectors`, and the
// monitor executes `out`, which makes KVM return to the VMM. The code has only instructions that a software KVM (one
// without hardware below it) emulates: iretq, out, invlpg, mov to cr3, wrmsr, but no sysretq, swapgs or int3.
//
// There are two sets of the entries for traps, of which the VMM uses one. An application can change the bases of fs and
// gs by loading a selector, and only the processor knows what they are then. On a KVM that lets application code execute
// wrfsbase, KVM copies the bases out at each exit, and the plain entries are used. On others the second set is used, where
// it works: the reporting entries, which store the bases and the selectors in memory (src/segments.rs).
//
// The crate linux-loader places the monitor at 64 KiB of guest-physical memory.

    .intel_syntax noprefix

    // Ports for `out`: the port says why the application stopped.
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

    // The addresses that the VMM needs. The entry point of the ELF file is the address of this table.
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

// Stores the data selectors and the bases of fs and gs in memory for the VMM. Needs rax, rcx and rdx for that, so the
// application's values of these are stored in memory first.
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

// SYSCALL in 64-bit code comes here (the LSTAR register holds this address). rcx holds the application's rip and r11 its
// rflags; all other registers are still the application's.
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

// SYSCALL in 32-bit code comes here (the CSTAR register holds this address).
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

// Clears the data selectors, which application code may have loaded. Then sets the bases of fs and gs, as loading a
// selector may have changed them. Clobbers rax, rcx and rdx.
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

// Goes to application code. rsp points to the application's rdx, rcx and rax, followed by the frame for iretq; all other
// registers already hold the application's values. The selectors are cleared each time: what an application loads into
// them lasts until its next trap and no longer, so that it does not depend on what else ran in between.
    .balign 64
    .globl resume
resume:
    clear_selectors
    pop rdx
    pop rcx
    pop rax
    iretq

// Goes to application code that was stopped without a trap of its own (by a kick, or after a step), which it must not
// notice: selectors are kept. Also used when nothing has to be cleared. rsp points to the frame for iretq; all other
// registers already hold the application's values.
    .balign 64
    .globl resume_keeping
resume_keeping:
    iretq

// Changes page tables, then does what resume does.
//   r8: number of page-table writes (pairs of address and value) in WRITES
//   r9: number of stale addresses in STALE, for invlpg
//   r10: page-table root to load into cr3, which also flushes cached translations; or 0 to do neither
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

// A table with an entry of 16 bytes for each exception vector. All entries use the same stack (IST 1), so what the processor
// and these entries push is at fixed addresses, where the VMM reads it: ss, rsp, rflags, cs, rip, error code (0 where
// the processor pushes none), vector, and for page faults cr2. Each entry ends with the instruction `leave`.
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
