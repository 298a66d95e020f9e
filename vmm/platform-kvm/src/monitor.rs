//! The monitor in memory ([`Monitor`]): loads its ELF file and builds the processor's tables for it.

use std::io::Cursor;

use bloodhound_platform::PlatformError;
use linux_loader::loader::KernelLoader;
use linux_loader::loader::elf::Elf;

use crate::layout::{
    GDT, IDT, LOW_END, MONITOR_BASE, MONITOR_PD, MONITOR_PDPT, TRAP_STACK_TOP, TSS, TSS_LIMIT, TSS_SELECTOR,
};
use crate::memory::Low;
use crate::tables::{ACCESSED, DIRTY, LARGE, NO_EXEC, PRESENT, WRITE};

/// Built by build.rs from `monitor/monitor.S`.
static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/monitor.elf"));

/// Where the monitor is entered; virtual addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Monitor {
    pub syscall_entry: u64,
    pub resume: u64,
    pub resume_keeping: u64,
    pub apply: u64,
    pub compat_entry: u64,
}

impl Monitor {
    /// Loads the monitor. `reporting`: traps enter it by the entries that report selectors and segment bases.
    pub fn load(low: &Low, reporting: bool) -> Result<Monitor, PlatformError> {
        let loaded = Elf::load(low.guest(), None, &mut Cursor::new(IMAGE), None)
            .map_err(|_| PlatformError::Internal("the monitor cannot be loaded"))?;
        let table =
            loaded.kernel_load.0 - if loaded.kernel_load.0 >= MONITOR_BASE { MONITOR_BASE } else { 0 };
        let entry = |n: u64| low.read(table + 8 * n);
        let (syscall_entry, compat_entry, vectors) =
            if reporting { (entry(6), entry(7), entry(8)) } else { (entry(0), entry(4), entry(5)) };
        descriptors(low);
        if reporting {
            // Not for software KVMs: they show application code the host's descriptor of this kind anyway, and their `iret` takes
            // ours for a code segment.
            low.write(GDT + u64::from(GDT_LIMIT) - 7, CPU_NODE);
        }
        gates(low, vectors);
        own_pages(low);
        Ok(Monitor {
            syscall_entry,
            resume: entry(1),
            resume_keeping: entry(2),
            apply: entry(3),
            compat_entry,
        })
    }
}

/// Segments as in Linux's GDT (asm/segment.h).
fn descriptors(low: &Low) {
    const CODE64: u64 = 0x00af_9b00_0000_ffff;
    const CODE32: u64 = 0x00cf_9b00_0000_ffff;
    const DATA: u64 = 0x00cf_9300_0000_ffff;
    const USER: u64 = 3 << 45;
    let base = MONITOR_BASE + TSS;
    let tss = u64::from(TSS_LIMIT)
        | (base & 0xff_ffff) << 16
        // Present, busy 64-bit TSS.
        | 0x8b << 40
        | (base >> 24 & 0xff) << 56;
    // Selectors 0, 0x08, 0x10, ...
    let table = [0, CODE32, CODE64, DATA, CODE32 | USER, DATA | USER, CODE64 | USER, 0, tss, base >> 32];
    assert_eq!(usize::from(TSS_SELECTOR / 8), 8);
    for (n, descriptor) in (0..).zip(table) {
        low.write(GDT + 8 * n, descriptor);
    }
    // IST 1 at offset 0x24, which is not aligned for words; the I/O map's offset at 0x66 is the limit: no port allowed.
    let top = MONITOR_BASE + TRAP_STACK_TOP;
    low.write(TSS + 0x20, (top & 0xffff_ffff) << 32);
    low.write(TSS + 0x28, top >> 32);
    low.write(TSS + 0x60, u64::from(TSS_LIMIT + 1) << 48);
}

/// The descriptor in whose limit Linux keeps the numbers of the processor and of its NUMA node, for `lsl` in application code
/// (vdso/processor.h). Both are 0 here. Its type: data, expanding down, that may be read.
const CPU_NODE: u64 = 0x0040_f500_0000_0000;

/// As in Linux: no local descriptor table and no thread areas behind the task state; then the number of the processor.
pub(crate) const GDT_LIMIT: u16 = 16 * 8 - 1;

/// An interrupt gate for each vector, on IST 1.
fn gates(low: &Low, vectors: u64) {
    for n in 0..256u64 {
        let handler = vectors + 16 * n;
        // As in Linux: application code may use int3, into's vector and int $0x80; everything else is #GP.
        let dpl = if matches!(n, 3 | 4 | 0x80) { 3 } else { 0 };
        let gate = handler & 0xffff
            | u64::from(crate::layout::KERNEL_CS) << 16
            | 1 << 32
            | (0x8e | dpl << 5) << 40
            | (handler >> 16 & 0xffff) << 48;
        low.write(IDT + 16 * n, gate);
        low.write(IDT + 16 * n + 8, handler >> 32);
    }
}

/// The monitor's view of low memory: large pages, for the supervisor only. The first, with its code, is executable.
fn own_pages(low: &Low) {
    low.write(MONITOR_PDPT + 8 * (MONITOR_BASE >> 30 & 511), MONITOR_PD | PRESENT | WRITE | ACCESSED);
    for n in 0..LOW_END >> 21 {
        let no_exec = if n == 0 { 0 } else { NO_EXEC };
        low.write(MONITOR_PD + 8 * n, n << 21 | PRESENT | WRITE | ACCESSED | DIRTY | LARGE | no_exec);
    }
}
