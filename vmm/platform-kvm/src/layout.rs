//! Where things lie in the virtual machine: guest-physical memory, the monitor's pages, selectors, ports.
//!
//! ```text
//! guest-physical                       in each page table
//! 0          monitor, its tables       MONITOR_BASE + the same, supervisor only
//! 1 MiB      page tables               the same
//! 4 GiB ...  the frame store           what a space maps, user
//! ```
//! `monitor/monitor.ld` and `monitor/monitor.S` have the same addresses; where the monitor is entered, its
//! table of entries says.

/// Virtual address at which guest-physical address 0 is mapped for ring 0.
pub const MONITOR_BASE: u64 = 0xffff_ffff_8000_0000;

pub const GDT: u64 = 0x1000;
pub const IDT: u64 = 0x2000;
pub const TSS: u64 = 0x3000;
/// The stack of all traps (IST 1) ends here.
pub const TRAP_STACK_TOP: u64 = 0x6000;
/// What `apply` pops before the frame: r10, r9, r8, rdx, rcx, rax; `resume` only pops the last three.
pub const SCRATCH: u64 = FRAME - 6 * 8;
/// The frame that `iretq` takes.
pub const FRAME: u64 = 0x7800;
/// Bases of fs and gs.
pub const BASES: u64 = 0x7f00;
/// What the reporting entries leave: rax, rcx, rdx.
pub const SAVED: u64 = 0x7f40;
/// The same: the bases of fs and gs as application code had them.
pub const REPORTED_BASES: u64 = 0x7f58;
/// The same: ds, es, fs, gs, 16 bits each.
pub const SELECTORS: u64 = 0x7f68;
/// Page-table writes: pairs of address and value.
pub const WRITES: u64 = 0x8000;
/// How many of them there is room for.
pub const WRITES_MAX: usize = 0x4000 / 16;
/// Addresses for `invlpg`.
pub const STALE: u64 = 0xc000;
/// More than these are not worth it: the whole TLB is flushed instead.
pub const STALE_MAX: usize = 16;
/// The two page tables that show the monitor, in every space.
pub const MONITOR_PDPT: u64 = 0x2_0000;
pub const MONITOR_PD: u64 = 0x2_1000;

/// Page tables of spaces: from here to the end of low memory.
pub const TABLES: u64 = 1 << 20;
/// End of low memory: room for 16 Ki page tables, which map 32 GiB at best.
pub const LOW_END: u64 = 64 << 20;

/// The frame store.
pub const ARENA: u64 = 4 << 30;
/// It is shown in slots of this size, as they are needed: some KVMs take memory in proportion to a slot's size.
pub const ARENA_SLOT: u64 = 1 << 30;

/// Memory slots.
pub const SLOT_MONITOR: u32 = 0;
pub const SLOT_TABLES: u32 = 1;
pub const SLOT_ARENA: u32 = 2;

/// Linux's selectors: what application code reads or loads is what it is used to.
pub const KERNEL_CS: u16 = 0x10;
pub const KERNEL_SS: u16 = 0x18;
pub const USER32_CS: u16 = 0x23;
pub const USER_SS: u16 = 0x2b;
pub const USER_CS: u16 = 0x33;
pub const TSS_SELECTOR: u16 = 0x40;
pub const TSS_LIMIT: u32 = 0x67;

/// Ports of the monitor's exits.
pub const PORT_SYSCALL: u16 = 0x10;
pub const PORT_TRAP: u16 = 0x11;
pub const PORT_COMPAT: u16 = 0x12;
