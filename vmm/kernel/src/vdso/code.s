# The functions of the vDSO. Assembled by the test tests/vdso.rs, which compares the result with code.bin; the test
# says how to write that file anew.
#
# The code lies at CODE in the image's page, behind the page of the clock (`image::CODE`, and the layout in vdso.rs).
# One read of the clock is one xadd to it: a trap anywhere in here, at which the kernel takes the clock over, counts
# the read once, and no two reads of the node's tasks see the clock run backwards.

.set CODE, 0x800

start:
.set vvar_clock, start - CODE - 0x1000
.set vvar_limit, vvar_clock + 8
.set vvar_cost, vvar_clock + 16
.set vvar_offset, vvar_clock + 24
.set vvar_tai, vvar_clock + 32

# Where the functions begin and where the last one ends.
    .short clock_gettime - start
    .short gettimeofday - start
    .short time - start
    .short getcpu - start
    .short clock_getres - start
    .short end - start

# Reads the clock into rax, or leaves for `otherwise` if it is time to enter the kernel.
.macro read_clock otherwise
    mov rax, qword ptr [rip + vvar_clock]
    cmp rax, qword ptr [rip + vvar_limit]
    jae \otherwise
    mov rax, qword ptr [rip + vvar_cost]
    xadd qword ptr [rip + vvar_clock], rax
    add rax, qword ptr [rip + vvar_cost]
.endm

# Leaves for `otherwise` if edi is not REALTIME, MONOTONIC, MONOTONIC_RAW, one of the two coarse ones, BOOTTIME, TAI.
.macro check_clock otherwise
    cmp edi, 11
    ja \otherwise
    mov eax, 0x8f3
    bt eax, edi
    jnc \otherwise
.endm

    .balign 16
# int clock_gettime(clockid_t edi, struct timespec *rsi)
clock_gettime:
    check_clock 9f
    read_clock 9f
    cmp edi, 11
    jne 3f
    add rax, qword ptr [rip + vvar_tai]
    jmp 1f
3:
    # REALTIME, REALTIME_COARSE
    mov ecx, 0x21
    bt ecx, edi
    jnc 1f
    add rax, qword ptr [rip + vvar_offset]
1:
    # The coarse ones tick every 4 ms.
    mov ecx, 0x60
    bt ecx, edi
    jnc 2f
    mov r8, rax
    xor edx, edx
    mov ecx, 4000000
    div rcx
    sub r8, rdx
    mov rax, r8
2:
    xor edx, edx
    mov ecx, 1000000000
    div rcx
    mov qword ptr [rsi], rax
    mov qword ptr [rsi + 8], rdx
    xor eax, eax
    ret
9:
    mov eax, 228
    syscall
    ret

    .balign 16
# int gettimeofday(struct timeval *rdi, struct timezone *rsi)
gettimeofday:
    test rdi, rdi
    jz 1f
    read_clock 9f
    add rax, qword ptr [rip + vvar_offset]
    xor edx, edx
    mov ecx, 1000000000
    div rcx
    mov qword ptr [rdi], rax
    mov eax, edx
    xor edx, edx
    mov ecx, 1000
    div ecx
    mov qword ptr [rdi + 8], rax
1:
    test rsi, rsi
    jz 2f
    mov qword ptr [rsi], 0
2:
    xor eax, eax
    ret
9:
    mov eax, 96
    syscall
    ret

    .balign 16
# time_t time(time_t *rdi)
time:
    read_clock 9f
    add rax, qword ptr [rip + vvar_offset]
    xor edx, edx
    mov ecx, 1000000000
    div rcx
    test rdi, rdi
    jz 1f
    mov qword ptr [rdi], rax
1:
    ret
9:
    mov eax, 201
    syscall
    ret

    .balign 16
# int getcpu(unsigned *rdi, unsigned *rsi): a node has one processor.
getcpu:
    test rdi, rdi
    jz 1f
    mov dword ptr [rdi], 0
1:
    test rsi, rsi
    jz 2f
    mov dword ptr [rsi], 0
2:
    xor eax, eax
    ret

    .balign 16
# int clock_getres(clockid_t edi, struct timespec *rsi)
clock_getres:
    check_clock 9f
    test rsi, rsi
    jz 2f
    mov eax, 1
    mov ecx, 0x60
    bt ecx, edi
    jnc 1f
    mov eax, 4000000
1:
    mov qword ptr [rsi], 0
    mov qword ptr [rsi + 8], rax
2:
    xor eax, eax
    ret
9:
    mov eax, 229
    syscall
    ret
end:
