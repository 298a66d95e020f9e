//! prctl(2), arch_prctl(2), personality(2): a process's settings that belong nowhere else.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::names;

use crate::caps::CAP_SYS_RESOURCE;
use crate::ctx::*;
use crate::task::{ADDR_NO_RANDOMIZE, PER_LINUX32, READ_IMPLIES_EXEC, UNAME26};
use crate::wait::{Stop, SysResult};

/// PR_TSC_ENABLE, PR_TSC_SIGSEGV.
const TSC_ENABLE: u64 = 1;
const TSC_SIGSEGV: u64 = 2;
/// PR_MCE_KILL_LATE, PR_MCE_KILL_EARLY, PR_MCE_KILL_DEFAULT.
const MCE_KILL_LATE: u64 = 0;
const MCE_KILL_EARLY: u64 = 1;
const MCE_KILL_DEFAULT: u64 = 2;
/// State components that programs may use: x87, SSE, AVX (`xgetbv` says the same).
const XFEATURES: u64 = 7;
/// Linux 6.1 counts 19 state components (XFEATURE_MAX).
const XFEATURE_MAX: u64 = 19;

/// prctl(2). EINVAL for options that Linux does not know.
pub fn prctl(k: &mut Ctx<'_>, option: u32, a2: u64, a3: u64, a4: u64, a5: u64) -> SysResult {
    let rest = a3 | a4 | a5;
    match u64::from(option) {
        c::PR_SET_NAME => set_name(k, a2),
        c::PR_GET_NAME => {
            let mut name = [0u8; 16];
            let comm = k.task().comm.clone();
            name[..comm.len().min(15)].copy_from_slice(&comm[..comm.len().min(15)]);
            k.write_bytes(a2, &name)?;
            Ok(0)
        }
        c::PR_SET_PDEATHSIG => {
            if a2 > 64 {
                return err(Errno::EINVAL);
            }
            k.task_mut().pdeathsig = a2 as u32;
            Ok(0)
        }
        c::PR_GET_PDEATHSIG => {
            let signal = k.task().pdeathsig;
            k.write_obj(Ptr(a2), &signal)?;
            Ok(0)
        }
        c::PR_GET_DUMPABLE => Ok(k.mm().kept.dumpable),
        c::PR_SET_DUMPABLE if a2 > 1 => err(Errno::EINVAL),
        c::PR_SET_DUMPABLE => {
            k.mm().kept.dumpable = a2;
            Ok(0)
        }
        c::PR_SET_NO_NEW_PRIVS if a2 != 1 || rest != 0 => err(Errno::EINVAL),
        c::PR_SET_NO_NEW_PRIVS => {
            k.task_mut().no_new_privs = true;
            Ok(0)
        }
        c::PR_GET_NO_NEW_PRIVS if a2 | rest != 0 => err(Errno::EINVAL),
        c::PR_GET_NO_NEW_PRIVS => Ok(u64::from(k.task().no_new_privs)),
        c::PR_SET_CHILD_SUBREAPER => {
            k.process_mut().subreaper = a2 != 0;
            Ok(0)
        }
        c::PR_GET_CHILD_SUBREAPER => {
            let on = i32::from(k.process().subreaper);
            k.write_obj(Ptr(a2), &on)?;
            Ok(0)
        }
        c::PR_SET_TIMERSLACK => {
            // The number is one without a sign, whatever the manual says of those below zero.
            k.task_mut().timer_slack.set(a2);
            Ok(0)
        }
        c::PR_GET_TIMERSLACK => Ok(k.task().timer_slack.ns()),
        c::PR_SET_THP_DISABLE if rest != 0 => err(Errno::EINVAL),
        c::PR_SET_THP_DISABLE => {
            k.mm().kept.thp_disable = a2 != 0;
            Ok(0)
        }
        c::PR_GET_THP_DISABLE if a2 | rest != 0 => err(Errno::EINVAL),
        c::PR_GET_THP_DISABLE => Ok(u64::from(k.mm().kept.thp_disable)),
        option @ (c::PR_GET_KEEPCAPS
        | c::PR_SET_KEEPCAPS
        | c::PR_GET_SECUREBITS
        | c::PR_SET_SECUREBITS
        | c::PR_CAPBSET_READ
        | c::PR_CAPBSET_DROP
        | c::PR_CAP_AMBIENT) => super::caps::prctl(k, option, [a2, a3, a4, a5]),
        c::PR_GET_TSC => {
            let shown = if k.task().no_tsc { TSC_SIGSEGV } else { TSC_ENABLE };
            k.write_obj(Ptr(a2), &(shown as i32))?;
            Ok(0)
        }
        // An unsigned int (set_tsc_mode). The vDSO goes on: it reads no counter here.
        c::PR_SET_TSC => match u64::from(a2 as u32) {
            mode @ (TSC_ENABLE | TSC_SIGSEGV) => {
                k.task_mut().no_tsc = mode == TSC_SIGSEGV;
                Ok(0)
            }
            _ => err(Errno::EINVAL),
        },
        option => rare(k, option, [a2, a3, a4, a5]),
    }
}

fn set_name(k: &mut Ctx<'_>, at: u64) -> SysResult {
    let mut name = [0u8; 15];
    let mut n = 0;
    while n < 15 {
        let byte: u8 = k.read_obj(Ptr(at + n as u64))?;
        if byte == 0 {
            break;
        }
        name[n] = byte;
        n += 1;
    }
    k.task_mut().comm = name[..n].to_vec();
    Ok(0)
}

/// Options that programs probe, and those of other processors and of machines with features that this one has not.
fn rare(k: &mut Ctx<'_>, option: u64, args: [u64; 4]) -> SysResult {
    let [a2, a3, a4, a5] = args;
    let name = names::name_of(names::PRCTL, option).unwrap_or_default();
    match name {
        "PR_GET_SECCOMP" => Ok(u64::from(k.task().seccomp.shown().0)),
        "PR_SET_SECCOMP" => super::seccomp::set_mode(k, a2, a3),
        // PR_TIMING_STATISTICAL, "the traditional one", is all there is.
        "PR_GET_TIMING" => Ok(0),
        "PR_SET_TIMING" => {
            if a2 == 0 {
                Ok(0)
            } else {
                err(Errno::EINVAL)
            }
        }
        // There are no counters to stop.
        "PR_TASK_PERF_EVENTS_DISABLE" | "PR_TASK_PERF_EVENTS_ENABLE" => Ok(0),
        "PR_MCE_KILL_GET" if a2 | a3 | a4 | a5 != 0 => err(Errno::EINVAL),
        "PR_MCE_KILL_GET" => Ok(match k.task().memory_errors {
            (false, _) => MCE_KILL_DEFAULT,
            (true, early) => u64::from(early),
        }),
        "PR_MCE_KILL" if a4 | a5 != 0 => err(Errno::EINVAL),
        "PR_MCE_KILL" => on_memory_errors(k, a2, a3),
        "PR_GET_TID_ADDRESS" => {
            let word = k.task().clear_child_tid;
            k.write_obj(Ptr(a2), &word)?;
            Ok(0)
        }
        // PR_SET_MM_MAP and PR_SET_MM_MAP_SIZE are for checkpoints; all others need CAP_SYS_RESOURCE.
        "PR_SET_MM" if a5 != 0 || matches!(a2, 14 | 15) || a4 != 0 && a2 != 12 => err(Errno::EINVAL),
        "PR_SET_MM" => err(Errno::EPERM),
        // Who may trace: nobody does. 0 and -1 stand for nobody and anybody.
        "PR_SET_PTRACER" => {
            let known =
                matches!(a2 as i32, 0 | -1) || k.node.processes.contains_key(&k.pid_ns().pid(a2 as u32));
            if known { Ok(0) } else { err(Errno::EINVAL) }
        }
        "PR_GET_SPECULATION_CTRL" | "PR_SET_SPECULATION_CTRL" => speculation(name, args),
        "PR_SET_IO_FLUSHER" | "PR_GET_IO_FLUSHER" if !k.capable(CAP_SYS_RESOURCE) => err(Errno::EPERM),
        "PR_SET_IO_FLUSHER" if a2 > 1 || a3 | a4 | a5 != 0 => err(Errno::EINVAL),
        "PR_SET_IO_FLUSHER" => {
            k.task_mut().io_flusher = a2 == 1;
            Ok(0)
        }
        "PR_GET_IO_FLUSHER" if a2 | a3 | a4 | a5 != 0 => err(Errno::EINVAL),
        "PR_GET_IO_FLUSHER" => Ok(u64::from(k.task().io_flusher)),
        // "ENODEV": one processor has no sibling to share a core with.
        "PR_SCHED_CORE" => err(Errno::ENODEV),
        // PR_SYS_DISPATCH_OFF.
        "PR_SET_SYSCALL_USER_DISPATCH" if a2 == 0 && a3 | a4 | a5 == 0 => Ok(0),
        // For emulators of other systems: as of Linux before 5.11.
        "PR_SET_SYSCALL_USER_DISPATCH" => err(Errno::EINVAL),
        // Naming anonymous memory is a debugging aid which needs CONFIG_ANON_VMA_NAME.
        "PR_SET_VMA" => err(Errno::EINVAL),
        // Of other processors than x86-64, or no longer there (MPX): "EINVAL The value of option is not recognized, or not
        // supported on this system."
        "PR_GET_UNALIGN"
        | "PR_SET_UNALIGN"
        | "PR_GET_FPEMU"
        | "PR_SET_FPEMU"
        | "PR_GET_FPEXC"
        | "PR_SET_FPEXC"
        | "PR_GET_ENDIAN"
        | "PR_SET_ENDIAN"
        | "PR_MPX_ENABLE_MANAGEMENT"
        | "PR_MPX_DISABLE_MANAGEMENT"
        | "PR_SET_FP_MODE"
        | "PR_GET_FP_MODE"
        | "PR_SVE_SET_VL"
        | "PR_SVE_GET_VL"
        | "PR_PAC_RESET_KEYS"
        | "PR_SET_TAGGED_ADDR_CTRL"
        | "PR_GET_TAGGED_ADDR_CTRL"
        | "PR_PAC_SET_ENABLED_KEYS"
        | "PR_PAC_GET_ENABLED_KEYS"
        | "PR_SME_SET_VL"
        | "PR_SME_GET_VL" => err(Errno::EINVAL),
        _ => unmodelled("prctl", names::PRCTL, option, Errno::EINVAL),
    }
}

/// PR_MCE_KILL. A policy that there is not is an error, and the thread has one of its own from then on.
fn on_memory_errors(k: &mut Ctx<'_>, what: u64, policy: u64) -> SysResult {
    const CLEAR: u64 = 0;
    const SET: u64 = 1;
    let (own, early) = &mut k.task_mut().memory_errors;
    match (what, policy) {
        (CLEAR, 0) => *own = false,
        (SET, MCE_KILL_LATE | MCE_KILL_EARLY) => (*own, *early) = (true, policy == MCE_KILL_EARLY),
        (SET, MCE_KILL_DEFAULT) => (*own, *early) = (false, false),
        (SET, _) => {
            *own = true;
            return err(Errno::EINVAL);
        }
        _ => return err(Errno::EINVAL),
    }
    Ok(0)
}

/// PR_GET_SPECULATION_CTRL and PR_SET_SPECULATION_CTRL on a processor without these weaknesses.
fn speculation(name: &str, [which, control, a4, a5]: [u64; 4]) -> SysResult {
    const STORE_BYPASS: u64 = 0;
    const INDIRECT_BRANCH: u64 = 1;
    const L1D_FLUSH: u64 = 2;
    const ENABLE: u64 = 2;
    const FORCE_DISABLE: u64 = 8;
    let get = name == "PR_GET_SPECULATION_CTRL";
    if a4 | a5 != 0 || get && control != 0 {
        return err(Errno::EINVAL);
    }
    match which {
        // PR_SPEC_NOT_AFFECTED
        STORE_BYPASS | INDIRECT_BRANCH if get => Ok(0),
        L1D_FLUSH if get => Ok(FORCE_DISABLE),
        // "ENXIO Control of the selected speculation misfeature is not possible."
        STORE_BYPASS => err(Errno::ENXIO),
        INDIRECT_BRANCH if control == ENABLE => Ok(0),
        INDIRECT_BRANCH if matches!(control, 4 | FORCE_DISABLE) => err(Errno::EPERM),
        INDIRECT_BRANCH => err(Errno::ERANGE),
        L1D_FLUSH => err(Errno::EPERM),
        // "ENODEV arg2 is [...] an unknown speculation misfeature."
        _ => err(Errno::ENODEV),
    }
}

/// arch_prctl(2). EPERM for a base outside of the address space of programs.
pub fn arch_prctl(k: &mut Ctx<'_>, code: Hex, addr: Ptr) -> SysResult {
    let code = code.0 & 0xffff_ffff;
    match code {
        c::ARCH_SET_FS | c::ARCH_SET_GS => {
            if addr.0 >= crate::mm::TASK_SIZE {
                return err(Errno::EPERM);
            }
            let regs = &mut k.task_mut().regs;
            if code == c::ARCH_SET_FS {
                regs.fs_base = addr.0;
            } else {
                regs.gs_base = addr.0;
            }
            Ok(0)
        }
        c::ARCH_GET_FS | c::ARCH_GET_GS => {
            let regs = k.task().regs;
            let base = if code == c::ARCH_GET_FS { regs.fs_base } else { regs.gs_base };
            k.write_obj(addr, &base)?;
            Ok(0)
        }
        c::ARCH_GET_CPUID => Ok(1),
        // "ENODEV ARCH_SET_CPUID was requested but the underlying hardware does not support CPUID faulting."
        c::ARCH_SET_CPUID => err(Errno::ENODEV),
        0x1021 | 0x1022 | 0x1024 => {
            k.write_obj(addr, &XFEATURES)?;
            Ok(0)
        }
        0x1023 | 0x1025 if addr.0 >= XFEATURE_MAX => err(Errno::EINVAL),
        // Only AMX is given on request, which this processor has not.
        0x1023 | 0x1025 => err(Errno::EOPNOTSUPP),
        // ARCH_MAP_VDSO_X32 and its kin, without CONFIG_CHECKPOINT_RESTORE.
        0x2001..=0x2003 => err(Errno::EINVAL),
        _ => unmodelled("arch_prctl", names::ARCH_PRCTL, code, Errno::EINVAL),
    }
}

/// personality(2): the one before. "If persona is not 0xffffffff" it is set. EPERM for what container runtimes do not let through
/// without CAP_SYS_ADMIN, but for ADDR_NO_RANDOMIZE and READ_IMPLIES_EXEC.
pub fn personality(k: &mut Ctx<'_>, persona: Hex) -> SysResult {
    let before = k.task().persona;
    if persona.0 != 0xffff_ffff {
        let known = PER_LINUX32 | UNAME26 | ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC;
        if persona.0 & !u64::from(known) != 0 && !k.capable(crate::caps::CAP_SYS_ADMIN) {
            return err(Errno::EPERM);
        }
        k.task_mut().persona = persona.0 as u32;
    }
    Ok(u64::from(before))
}

/// A command that no arm of its call models: the run stops with its name if Linux 6.1 knows it, else it gets the error that
/// Linux gives to unknown ones.
pub(crate) fn unmodelled<T>(call: &str, known: names::Names, value: u64, unknown: Errno) -> SysResult<T> {
    match names::name_of(known, value) {
        Some(name) => Err(Stop::Unsupported(format!("{call} {name}"))),
        None => err(unknown),
    }
}
