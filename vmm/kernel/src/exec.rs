//! execve(2): resolving scripts, mapping an ELF image and its interpreter, building the initial stack.
//!
//! Neighbours: `spawn` (the first process of a container), `sys::exec` (the calls).

use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Sigaction;
use bloodhound_abi::{Errno, Regs};
use bloodhound_decisions::TaskRandom;
use bloodhound_vfs::{Ino, Kind};

use crate::credentials::{Credentials, Executed, OfProgram};
use crate::ctx::*;
use crate::elf::{self, Elf};
use crate::ids::*;
use crate::mm::{Backing, Marks, Mm, OnFork, PAGE, TASK_SIZE, Vma, page_up};
use crate::path::Place;
use crate::process::ExitStatus;
use crate::script;
use crate::task::{ADDR_NO_RANDOMIZE, PER_CLEAR_ON_SETID, READ_IMPLIES_EXEC};
use crate::wait::SysResult;
use crate::watch::Told;

/// Where position-independent programs begin: two thirds of the address space.
const ELF_ET_DYN_BASE: u64 = 0x5555_5555_4000;
/// Nested interpreters allowed (execve(2): "a maximum of four").
const SCRIPT_DEPTH: usize = 4;
/// The initial stack is at most a quarter of the stack limit for arguments (execve(2), "Limits on size").
const ARG_MAX: usize = 2 << 20;
/// The largest single argument (MAX_ARG_STRLEN, 32 pages).
const ARG_STRLEN: usize = 131_072;

/// What a stack has beside strings at first, before it grows: a page for the auxiliary vector, and `stack_expand` of Linux.
const STACK_ROOM: u64 = PAGE + (128 << 10);

const S_IXGRP: u64 = 0o010;

/// A program to start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Path of the executable inside the node.
    pub path: Vec<u8>,
    /// Arguments, argv[0] first.
    pub argv: Vec<Vec<u8>>,
    /// Environment, `NAME=value`.
    pub envp: Vec<Vec<u8>>,
    /// Working directory.
    pub cwd: Vec<u8>,
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// Where the path of a program starts: execveat(2)'s other arguments.
pub(crate) struct Origin {
    pub dirfd: Fd,
    /// AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW.
    pub flags: u64,
}

impl Default for Origin {
    fn default() -> Origin {
        Origin { dirfd: AT_CWD, flags: 0 }
    }
}

/// An executable found and read.
struct Image {
    ino: Ino,
    elf: Elf,
    path: Vec<u8>,
    argv: Vec<Vec<u8>>,
    interp: Option<(Ino, Elf)>,
    /// User and group that the file gives.
    set_ids: [Option<u32>; 2],
    /// The caller may not read it, or its interpreter: others may not see its memory (would_dump).
    unreadable: bool,
}

impl Ctx<'_> {
    fn open_exec(&mut self, from: &Origin, path: &[u8]) -> SysResult<(Ino, bloodhound_vfs::Stat)> {
        let follow = from.flags & c::AT_SYMLINK_NOFOLLOW == 0;
        let place = if path.is_empty() && from.flags & c::AT_EMPTY_PATH != 0 {
            self.fd_place(from.dirfd)?
        } else {
            self.resolve(from.dirfd, path, follow)?
        };
        let Place::Ino(ino) = place else { return err(Errno::EACCES) };
        // "ELOOP flags includes AT_SYMLINK_NOFOLLOW and the file [...] is a symbolic link" (execveat(2)).
        if !follow && self.node.vfs.stat_ino(ino)?.kind == Kind::Symlink {
            return err(Errno::ELOOP);
        }
        let cred = self.fs_cred();
        self.node.vfs.exec_start(self.outside.base, ino, &cred)?;
        // Only the program itself stays busy, until its last address space is gone ([`Mm::exe`]).
        self.node.vfs.exec_end(ino);
        Ok((ino, self.node.vfs.stat_ino(ino)?))
    }

    fn head(&mut self, ino: Ino) -> SysResult<Vec<u8>> {
        let mut head = vec![0; elf::HEAD];
        let n = self.node.vfs.read_at(ino, 0, &mut head)?;
        head.truncate(n);
        Ok(head)
    }

    /// Finds the executable behind `path`, through `#!` lines.
    fn load_image(&mut self, from: Origin, path: Vec<u8>, argv: Vec<Vec<u8>>) -> SysResult<Image> {
        let (mut from, mut path, mut argv) = (from, path, argv);
        // The thread's name and AT_EXECFN are of the script, not of its interpreter.
        let mut name = None;
        for _ in 0..=SCRIPT_DEPTH {
            let (ino, stat) = self.open_exec(&from, &path)?;
            if from.dirfd != AT_CWD && path.first() != Some(&b'/') {
                path = self.descriptor_path(&from, path, ino)?;
            }
            name.get_or_insert_with(|| path.clone());
            from = Origin::default();
            let head = self.head(ino)?;
            if head.starts_with(b"#!") {
                let (interp, arg) = script::interpreter(&head).ok_or(Errno::ENOEXEC)?;
                // A name of no bytes leads to the current directory (`open_exec`).
                if interp.is_empty() {
                    return err(Errno::EACCES);
                }
                // "interpreter [optional-arg] pathname arg..." (execve(2), "Interpreter scripts")
                let rest = argv.into_iter().skip(1);
                argv = std::iter::once(interp.clone())
                    .chain(arg)
                    .chain(std::iter::once(path))
                    .chain(rest)
                    .collect();
                path = interp;
                continue;
            }
            let elf = elf::parse(&head)?;
            let interp = match elf.interp {
                None => None,
                Some((offset, size)) => Some(self.load_interp(ino, offset, size)?),
            };
            let path = name.unwrap_or(path);
            let (unreadable, set_ids) = (self.may_not_read(ino, &interp), set_ids(&stat));
            return Ok(Image { ino, elf, path, argv, interp, set_ids, unreadable });
        }
        err(Errno::ELOOP)
    }

    fn may_not_read(&self, ino: Ino, interp: &Option<(Ino, Elf)>) -> bool {
        let cred = self.fs_cred();
        let mut files = std::iter::once(ino).chain(interp.iter().map(|(ino, _)| *ino));
        files.any(|ino| self.node.vfs.access_ino(ino, &cred, bloodhound_vfs::flags::MAY_READ).is_err())
    }

    /// How a program that was named by a descriptor appears: "/dev/fd/" with the number and the path below it, which
    /// an interpreter can open only if the descriptor outlives execve.
    fn descriptor_path(&mut self, from: &Origin, path: Vec<u8>, ino: Ino) -> SysResult<Vec<u8>> {
        let script = self.head(ino)?.starts_with(b"#!");
        // "ENOENT The program [...] requires the use of an interpreter program [...], but the file descriptor dirfd was
        // opened with the O_CLOEXEC flag" (execveat(2)).
        if script && self.fd(from.dirfd)?.cloexec {
            return err(Errno::ENOENT);
        }
        let mut shown = format!("/dev/fd/{}", from.dirfd.0).into_bytes();
        if !path.is_empty() {
            shown.push(b'/');
            shown.extend_from_slice(&path);
        }
        Ok(shown)
    }

    fn load_interp(&mut self, ino: Ino, offset: u64, size: u64) -> SysResult<(Ino, Elf)> {
        if !(2..=4096).contains(&size) {
            return err(Errno::ENOEXEC);
        }
        let mut name = vec![0; size as usize];
        let n = self.node.vfs.read_at(ino, offset, &mut name)?;
        if n != name.len() || name.pop() != Some(0) {
            return err(Errno::ENOEXEC);
        }
        let (ino, _) = self.open_exec(&Origin::default(), &name)?;
        let head = self.head(ino)?;
        // "ELIBBAD An ELF interpreter was not in a recognized format."
        let elf = elf::parse(&head).map_err(|_| Errno::ELIBBAD)?;
        Ok((ino, elf))
    }

    /// Replaces the process's program. The caller is the only thread left on success.
    pub(crate) fn exec(
        &mut self,
        from: Origin,
        path: Vec<u8>,
        argv: Vec<Vec<u8>>,
        envp: Vec<Vec<u8>>,
    ) -> SysResult<()> {
        let argv = if argv.is_empty() { vec![Vec::new()] } else { argv };
        let total: usize = argv.iter().chain(&envp).map(|s| s.len() + 9).sum();
        if total > ARG_MAX || argv.iter().chain(&envp).any(|s| s.len() >= ARG_STRLEN) {
            return err(Errno::E2BIG);
        }
        let image = self.load_image(from, path, argv)?;
        // The new memory is complete before the old is given up, so that an error changes nothing.
        let space = self.node.new_space();
        let mut mm = Mm::new(space, self.process().container);
        mm.kept = self.mm().kept;
        let program = self.credentials().of_program(self.executed(image.set_ids));
        let nth = self.next_random();
        let fixed = self.task().persona & ADDR_NO_RANDOMIZE != 0;
        let mut draw = |part, bound| {
            let site = self.random_site(part, nth);
            if fixed { 0 } else { self.outside.decisions.choose(site, bound) }
        };
        // Linux randomises 28 bits of mmap base, 22 of the stack, 13 of the heap gap: a part of that is plenty.
        let mmap_slack = draw(TaskRandom::Mmap, 0x10_0000);
        let stack_slack = draw(TaskRandom::Stack, 0x4000);
        let brk_slack = draw(TaskRandom::Heap, 0x2000);
        let pie_slack = draw(TaskRandom::Pie, 0x10_0000);
        let mut random = [0; 16];
        self.outside.decisions.bytes(self.random_site(TaskRandom::Aux, nth), &mut random);
        mm.stack_top = TASK_SIZE - stack_slack * PAGE;
        mm.mmap_base = TASK_SIZE - (0x4000 * PAGE) - (64 << 20) - mmap_slack * PAGE;
        let alone = image.elf.dynamic && image.interp.is_none();
        let at = load_bias(&mut mm, &image, ELF_ET_DYN_BASE + pie_slack * PAGE)?;
        let bias = map_elf(&mut mm, &image.elf, image.ino, at)?;
        let (_, high) = image.elf.span();
        let heap = if alone && !fixed { ELF_ET_DYN_BASE } else { high.wrapping_add(bias) } + brk_slack * PAGE;
        mm.brk = (heap, heap);
        let mut entry = image.elf.entry.wrapping_add(bias);
        let program_entry = entry;
        let mut interp_base = 0;
        if let Some((ino, elf)) = &image.interp {
            let at = if elf.dynamic { Some(aligned_room(&mut mm, elf)?) } else { None };
            interp_base = map_elf(&mut mm, elf, *ino, at)?;
            entry = elf.entry.wrapping_add(interp_base);
        }
        let exec = if image.elf.exec_stack { c::PROT_EXEC } else { 0 };
        let strings: usize = image.argv.iter().chain(&envp).map(|s| s.len() + 9).sum();
        let strings = page_up((strings + image.path.len()) as u64).ok_or(Errno::E2BIG)?;
        let low = mm.stack_top - strings - STACK_ROOM;
        let mut stack = anon(low, mm.stack_top, c::PROT_READ | c::PROT_WRITE | exec);
        stack.marks.grows = true;
        mm.insert(stack);
        let vdso = self.node.map_vdso(&mut mm);
        mm.exe = Some(image.ino);
        self.node.vfs.exec_share(image.ino);
        let mm_id = self.node.mms.insert(mm);
        let vmas: Vec<Vma> = self.node.mms[mm_id].vmas().cloned().collect();
        for vma in &vmas {
            self.node.backing_ref(mm_id, vma);
        }
        let aux = Aux {
            phdr: image.elf.phdr_vaddr().wrapping_add(bias),
            phnum: image.elf.phnum,
            base: interp_base,
            entry: program_entry,
            vdso,
            random,
            program: &program,
        };
        let filled = self.zero_bss_tails(mm_id, &image.elf, bias).and_then(|()| {
            if let Some((_, elf)) = &image.interp {
                self.zero_bss_tails(mm_id, elf, interp_base)?;
            }
            self.build_stack(mm_id, &image, &envp, &aux)
        });
        let sp = match filled {
            Ok(sp) => sp,
            Err(stop) => {
                self.node.mm_release(self.pid, mm_id);
                return Err(stop);
            }
        };
        self.node.expect_all(mm_id, &vmas);
        self.commit(image, program, mm_id, Regs::user(entry, sp));
        Ok(())
    }

    fn executed(&self, set_ids: [Option<u32>; 2]) -> Executed {
        let place = self.task().common.place;
        let threads = self.process().threads.iter();
        let own = threads.filter(|tid| self.node.task(**tid).common.place == place).count();
        Executed {
            set_ids,
            no_new_privs: self.task().no_new_privs,
            shares_place: self.node.places[place].users as usize > own,
        }
    }

    /// The program has its memory and gets its credentials. It is dumpable unless effective and real ids of who executes it differ, or
    /// it cannot be read (begin_new_exec).
    fn take_credentials(&mut self, program: OfProgram, unreadable: bool) {
        const STACK: u64 = 8 << 20;
        if program.secure {
            self.task_mut().pdeathsig = 0;
            // "For secureexec, reset the stack limit to sane default".
            let stack = &mut self.process_mut().limits[c::RLIMIT_STACK as usize];
            stack.cur = stack.cur.min(STACK);
        }
        let me = self.credentials();
        let own = (me.real_ids[0], me.real_ids[2]) == (me.cred.uid, me.cred.gid);
        self.mm().kept.dumpable = u64::from(own && !unreadable);
        self.commit_credentials(program.credentials);
        // "64bit processes have always behaved this way" (set_personality_64bit).
        let cleared = if program.wins { PER_CLEAR_ON_SETID } else { 0 };
        self.task_mut().persona &= !(READ_IMPLIES_EXEC | cleared);
    }

    /// The point of no return: the other threads end, memory and descriptors are replaced (execve(2), "Effect on process
    /// attributes").
    fn commit(&mut self, image: Image, program: OfProgram, mm_id: MmId, regs: Regs) {
        let cost = self.node.config.costs.process;
        self.node.charge(self.tid, cost);
        for other in self.process().threads.clone() {
            if other != self.tid {
                self.node.exit_task(other, ExitStatus::Code(0), &mut self.outside);
            }
        }
        self.node.pi_exit(self.tid);
        self.become_leader();
        self.release_memory();
        // "the file descriptor table is unshared" (execve(2)), and so are signal actions; a place in the file system is not.
        self.unshare_table();
        self.unshare_actions();
        self.node.vfork_done(self.tid);
        self.node.mq_forget_program(self.pid);
        let old = std::mem::replace(&mut self.process_mut().mm, mm_id);
        let peak = self.node.mms[old].peak;
        let process = self.process_mut();
        process.peak = process.peak.max(peak);
        self.node.mm_release(self.pid, old);
        let closing: Vec<i32> = self.table().iter().filter(|(_, e)| e.cloexec).map(|(fd, _)| fd).collect();
        self.close_all(closing);
        let comm: Vec<u8> =
            image.path.rsplit(|b| *b == b'/').next().unwrap_or_default().iter().take(15).copied().collect();
        let exe = self.node.vfs.path_of(self.node.vfs.root(), image.ino);
        let process = self.process_mut();
        process.exe = exe;
        process.did_exec = true;
        self.take_credentials(program, image.unreadable);
        // "The dispositions of any signals that are being caught are reset to the default"; ignored stay ignored.
        for action in self.node.actions_of_mut(self.pid).iter_mut() {
            let ignore = action.handler == c::SIG_IGN;
            *action =
                Sigaction { handler: if ignore { c::SIG_IGN } else { c::SIG_DFL }, ..Sigaction::default() };
        }
        self.node.delete_timers(self.pid);
        let task = self.task_mut();
        task.regs = regs;
        task.vectors = crate::task::Vectors::INITIAL;
        task.altstack = bloodhound_abi::structs::StackT { flags: c::SS_DISABLE as i32, ..Default::default() };
        task.comm = comm;
        let Ctx { node, pid, tid, outside, .. } = self;
        outside.tell(node, (*pid, *tid), &Told::Exec { path: &node.process(*pid).exe });
    }

    /// "if the execve() was called by a thread that is not the leader, it takes the leader's thread ID" (execve(2)).
    fn become_leader(&mut self) {
        let leader = Tid(self.pid.0);
        if self.tid == leader {
            return;
        }
        // Its task is gone for good (release_task in de_thread), and so are its filters.
        let filters = std::mem::take(&mut self.process_mut().ended_filters);
        self.node.release_filters(&filters);
        let Some(mut task) = self.node.tasks.remove(&self.tid) else { return };
        task.tid = leader;
        self.node.tasks.insert(leader, task);
        let process = self.node.process_mut(self.pid);
        (process.threads, process.chosen) = (vec![leader], leader);
        let old = self.tid;
        for t in &mut self.node.run_queue {
            if *t == old {
                *t = leader;
            }
        }
        self.tid = leader;
        self.node.hand_over_children(old, self.pid, leader);
    }

    /// Writes strings, vectors and the auxiliary vector; returns the stack pointer (System V ABI, "Initial Process
    /// Stack").
    fn build_stack(&mut self, mm: MmId, image: &Image, envp: &[Vec<u8>], aux: &Aux<'_>) -> SysResult {
        let mut sp = self.node.mms[mm].stack_top - 8;
        let mut push = |k: &mut Ctx<'_>, bytes: &[u8]| -> SysResult {
            sp -= bytes.len() as u64;
            k.write_bytes_of(mm, sp, bytes)?;
            Ok(sp)
        };
        let with_nul = |s: &[u8]| [s, &[0]].concat();
        let env_end = push(self, &with_nul(&image.path))?;
        let execfn = env_end;
        let mut env_at = Vec::with_capacity(envp.len());
        for s in envp.iter().rev() {
            env_at.push(push(self, &with_nul(s))?);
        }
        let arg_end = env_at.last().copied().unwrap_or(env_end);
        let mut arg_at = Vec::with_capacity(image.argv.len());
        for s in image.argv.iter().rev() {
            arg_at.push(push(self, &with_nul(s))?);
        }
        let arg_start = arg_at.last().copied().unwrap_or(arg_end);
        let platform = push(self, b"x86_64\0")?;
        let random = push(self, &aux.random)?;
        let mut auxv: Vec<(u64, u64)> = Vec::new();
        if let Some(vdso) = aux.vdso {
            auxv.push((c::AT_SYSINFO_EHDR, vdso));
        }
        let Credentials { cred, real_ids: ids, .. } = &aux.program.credentials;
        auxv.extend([
            // CPUID.1:EDX of the fixed profile.
            (c::AT_HWCAP, 0x178b_fbff),
            (c::AT_PAGESZ, PAGE),
            (c::AT_CLKTCK, 100),
            (c::AT_PHDR, aux.phdr),
            (c::AT_PHENT, 56),
            (c::AT_PHNUM, u64::from(aux.phnum)),
            (c::AT_BASE, aux.base),
            (c::AT_FLAGS, 0),
            (c::AT_ENTRY, aux.entry),
            (c::AT_UID, u64::from(ids[0])),
            (c::AT_EUID, u64::from(cred.uid)),
            (c::AT_GID, u64::from(ids[2])),
            (c::AT_EGID, u64::from(cred.gid)),
            (c::AT_SECURE, u64::from(aux.program.secure)),
            (c::AT_RANDOM, random),
            (c::AT_HWCAP2, 0),
            (c::AT_EXECFN, execfn),
            (c::AT_PLATFORM, platform),
            (c::AT_MINSIGSTKSZ, 2048),
            (c::AT_NULL, 0),
        ]);
        let mut words: Vec<u64> = vec![image.argv.len() as u64];
        words.extend(arg_at.iter().rev());
        words.push(0);
        words.extend(env_at.iter().rev());
        words.push(0);
        words.extend(auxv.iter().flat_map(|(k, v)| [*k, *v]));
        let told = auxv.iter().flat_map(|(k, v)| [k.to_le_bytes(), v.to_le_bytes()]).flatten().collect();
        self.process_mut().auxv = std::sync::Arc::new(told);
        self.node.mms[mm].strings = [arg_start, arg_end, env_end];
        let sp = (random - 8 * words.len() as u64) & !15;
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.write_bytes_of(mm, sp, &bytes)?;
        Ok(sp)
    }
}

struct Aux<'a> {
    phdr: u64,
    phnum: u16,
    base: u64,
    entry: u64,
    vdso: Option<u64>,
    random: [u8; 16],
    program: &'a OfProgram,
}

/// What a program's file gives. A file that its group may not execute is not meant to have S_ISGID for this (bprm_fill_uid).
fn set_ids(stat: &bloodhound_vfs::Stat) -> [Option<u32>; 2] {
    let (mode, group) = (u64::from(stat.mode), c::S_ISGID | S_IXGRP);
    [(mode & c::S_ISUID != 0).then_some(stat.uid), (mode & group == group).then_some(stat.gid)]
}

fn anon(start: u64, end: u64, prot: u64) -> Vma {
    Vma {
        start,
        end,
        prot,
        shared: false,
        backing: Backing::Anon,
        on_fork: OnFork::Copy,
        may_write: true,
        // As of vm_brk_flags and the stack.
        marks: Marks { accounted: true, ..Marks::default() },
    }
}

/// The load bias of a program, if it has a choice. What has no interpreter may be one: it lies among the mappings, and leaves its `usual` place to the program
/// that it loads (load_elf_binary).
fn load_bias(mm: &mut Mm, image: &Image, usual: u64) -> SysResult<Option<u64>> {
    Ok(match (image.elf.dynamic, &image.interp) {
        (false, _) => None,
        (true, Some(_)) => Some(usual),
        (true, None) => Some(aligned_room(mm, &image.elf)?),
    })
}

/// A load bias for ET_DYN among the mappings. It is a multiple of the largest alignment of a segment, which Linux 6.1 sees to only for programs
/// that have an interpreter, and later versions for all. Of a file whose addresses are high it is less than 0, modulo 2^64.
fn aligned_room(mm: &mut Mm, elf: &Elf) -> SysResult {
    let (low, high) = elf.span();
    let free = mm.find_free(0, high - low + elf.align - PAGE)?;
    let least = free.wrapping_sub(low);
    Ok(least.wrapping_add(least.wrapping_neg() & (elf.align - 1)))
}

/// Maps the segments; `at` is the load bias for ET_DYN, which is rounded down to the largest alignment of a segment (maximum_alignment). Returns the bias.
fn map_elf(mm: &mut Mm, elf: &Elf, ino: Ino, at: Option<u64>) -> SysResult {
    let bias = at.map_or(0, |at| at & !(elf.align - 1));
    for s in &elf.segments {
        let prot = [(4, c::PROT_READ), (2, c::PROT_WRITE), (1, c::PROT_EXEC)]
            .iter()
            .filter(|(f, _)| s.flags & f != 0)
            .fold(0, |p, (_, bit)| p | bit);
        let start = (s.vaddr & !(PAGE - 1)).wrapping_add(bias);
        let skew = s.vaddr % PAGE;
        let end = |size: u64| page_up(start.checked_add(skew)?.checked_add(size)?);
        let file_end = end(s.filesz).ok_or(Errno::ENOEXEC)?;
        let mem_end = end(s.memsz).ok_or(Errno::ENOEXEC)?;
        if mem_end > TASK_SIZE || start < PAGE || mm.overlaps(start, mem_end) {
            return err(Errno::ENOEXEC);
        }
        if s.filesz > 0 {
            let backing = Backing::File { ino, offset: s.offset - skew };
            mm.insert(Vma {
                start,
                end: file_end,
                prot,
                shared: false,
                backing,
                on_fork: OnFork::Copy,
                may_write: true,
                marks: Marks { accounted: Vma::accounts(prot, false, false), ..Marks::default() },
            });
        }
        let bss = if s.filesz > 0 { file_end } else { start };
        if mem_end > bss {
            mm.insert(anon(bss, mem_end, prot));
        }
    }
    Ok(bias)
}

impl Ctx<'_> {
    /// Zeroes the part of the last file page that belongs to .bss.
    fn zero_bss_tails(&mut self, mm: MmId, elf: &Elf, bias: u64) -> SysResult<()> {
        for s in elf.segments.iter().filter(|s| s.memsz > s.filesz && s.filesz > 0 && s.flags & 2 != 0) {
            let from = s.vaddr.wrapping_add(bias) + s.filesz;
            // To the end of the page, not of the segment: ld.so's first allocator takes the rest for zeroes.
            let to = page_up(from).unwrap_or(from);
            if to > from {
                self.write_bytes_of(mm, from, &vec![0; (to - from) as usize])?;
            }
        }
        Ok(())
    }
}

/// AT_FDCWD as a descriptor argument.
pub(crate) const AT_CWD: Fd = Fd(c::AT_FDCWD);
