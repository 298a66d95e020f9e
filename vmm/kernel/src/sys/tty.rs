//! ioctl(2) of terminals (ioctl_tty(2)).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Termios, Winsize};

use crate::caps::CAP_SYS_ADMIN;
use crate::ctx::*;
use crate::file::FileKind;
use crate::ids::*;
use crate::process::Process;
use crate::tty::BUFFER;
use crate::tty::line::Line;
use crate::tty::modes::{self, packet};
use crate::wait::{Object, Stop, SysResult};

const TCGETA: u64 = 0x5405;
const TCSETA: u64 = 0x5406;
const TCSETAF: u64 = 0x5408;
const TCSBRK: u64 = 0x5409;
const TCXONC: u64 = 0x540a;
const TCFLSH: u64 = 0x540b;
const TIOCEXCL: u64 = 0x540c;
const TIOCNXCL: u64 = 0x540d;
const TIOCSTI: u64 = 0x5412;
const TIOCPKT: u64 = 0x5420;
const TIOCSETD: u64 = 0x5423;
const TIOCGETD: u64 = 0x5424;
const TCSBRKP: u64 = 0x5425;
const TIOCSBRK: u64 = 0x5427;
const TIOCCBRK: u64 = 0x5428;
const TIOCGSID: u64 = 0x5429;
const TIOCVHANGUP: u64 = 0x5437;
const TCGETS2: u64 = 0x802c_542a;
const TCSETS2: u64 = 0x402c_542b;
const TCSETSF2: u64 = 0x402c_542d;
const TIOCSPTLCK: u64 = 0x4004_5431;
const TIOCGDEV: u64 = 0x8004_5432;
const TIOCSIG: u64 = 0x4004_5436;
const TIOCGPKT: u64 = 0x8004_5438;
const TIOCGPTLCK: u64 = 0x8004_5439;
const TIOCGEXCL: u64 = 0x8004_5440;
const TIOCGPTPEER: u64 = 0x5441;
const TIOCCONS: u64 = 0x541d;
const TIOCGLCKTRMIOS: u64 = 0x5456;
const TIOCSLCKTRMIOS: u64 = 0x5457;

/// NCC: characters in a `struct termio`.
const TERMIO_CC: usize = 8;

/// How modes are given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `struct termio`, of System V.
    Termio,
    /// `struct termios`.
    Plain,
    /// `struct termios2`, with speeds.
    WithSpeeds,
}

impl Ctx<'_> {
    /// Commands of a side of a pseudoterminal. The modes, the window, the session are the slave's, whichever side asks.
    pub(crate) fn tty_ioctl(
        &mut self,
        file: FileId,
        (pty, master): (PtyId, bool),
        cmd: u64,
        arg: Ptr,
    ) -> SysResult {
        // "hung_up_tty_ioctl: return cmd == TIOCSPGRP ? -ENOTTY : -EIO".
        if self.node.is_hung_up(&self.node.files[file].kind) {
            return err(if cmd == c::TIOCSPGRP { Errno::ENOTTY } else { Errno::EIO });
        }
        if self.node.ptys[pty].line(master) == Line::Null && of_line(cmd) {
            if (cmd, arg.0 & 1) == (TCFLSH, 0) && !master {
                self.node.ptys[pty].input.flip.clear();
            }
            return err(Errno::EINVAL);
        }
        match cmd {
            c::TCGETS | TCGETS2 => self.get_modes(pty, cmd == TCGETS2, arg),
            TCGETA => self.get_termio(pty, arg),
            c::TCSETS..=c::TCSETSF => self.set_modes(pty, Form::Plain, cmd == c::TCSETSF, arg),
            TCSETS2..=TCSETSF2 => self.set_modes(pty, Form::WithSpeeds, cmd == TCSETSF2, arg),
            TCSETA..=TCSETAF => self.set_modes(pty, Form::Termio, cmd == TCSETAF, arg),
            // No mode is locked; to lock one needs CAP_SYS_ADMIN.
            TIOCGLCKTRMIOS => {
                self.write_obj(arg, &Termios::default())?;
                Ok(0)
            }
            TIOCSLCKTRMIOS => err(Errno::EPERM),
            TIOCSTI => self.type_byte((pty, master), arg),
            TIOCCONS if master => err(Errno::EINVAL),
            TIOCVHANGUP | TIOCCONS if !self.capable(CAP_SYS_ADMIN) => err(Errno::EPERM),
            TIOCVHANGUP => {
                self.node.hang_up_side(pty, master);
                Ok(0)
            }
            TIOCCONS => Err(Stop::Unsupported("the console's output on a terminal".into())),
            c::TIOCGWINSZ => {
                let size = self.node.ptys[pty].size;
                self.write_obj(arg, &size)?;
                Ok(0)
            }
            c::TIOCSWINSZ => self.set_size(pty, arg),
            c::TIOCSCTTY => {
                let readable = self.node.files[file].readable();
                self.take_terminal(pty, arg.0 == 1, readable)
            }
            c::TIOCNOTTY => {
                if self.process().tty != Some(pty) {
                    return err(Errno::ENOTTY);
                }
                let pid = self.pid;
                self.node.leave_terminal(pid, false);
                Ok(0)
            }
            c::TIOCGPGRP | TIOCGSID => self.get_group(pty, master, cmd, arg),
            c::TIOCSPGRP => self.set_group(pty, arg),
            TCXONC | TCFLSH => self.control_flow((pty, master), cmd, arg),
            // tcdrain(3), tcsendbreak(3): nothing has to be waited for, and no line can be broken.
            TCSBRK | TCSBRKP | TIOCSBRK | TIOCCBRK => {
                if cmd != TIOCCBRK {
                    self.check_foreground(pty, c::SIGTTOU)?;
                }
                Ok(0)
            }
            TIOCEXCL | TIOCNXCL => {
                // The master can only be opened once anyway.
                if !master {
                    self.node.ptys[pty].exclusive = cmd == TIOCEXCL;
                }
                Ok(0)
            }
            TIOCSETD => self.set_line((pty, master), arg),
            c::FIONREAD | c::TIOCOUTQ | TIOCGEXCL | TIOCGETD | TIOCGDEV => {
                let answer = self.tty_number((pty, master), cmd);
                self.write_obj(arg, &answer)?;
                Ok(0)
            }
            _ if master => self.master_ioctl(pty, cmd, arg),
            _ => err(Errno::ENOTTY),
        }
    }

    /// Questions that a number answers.
    fn tty_number(&self, (pty, master): (PtyId, bool), cmd: u64) -> u32 {
        let p = &self.node.ptys[pty];
        match cmd {
            c::FIONREAD if master => p.output.len().min(BUFFER - 1) as u32,
            c::FIONREAD => p.input.unread(p.by_lines()) as u32,
            TIOCGEXCL => u32::from(p.exclusive && !master),
            // The low eight bits of the minor number, the major one, the rest.
            TIOCGDEV => p.number & 0xff | if master { 128 } else { 136 } << 8 | (p.number & !0xff) << 12,
            TIOCGETD if p.line(master) == Line::Null => 27,
            // TIOCOUTQ: what was written has arrived. TIOCGETD: N_TTY.
            _ => 0,
        }
    }

    /// Commands of the master alone.
    fn master_ioctl(&mut self, pty: PtyId, cmd: u64, arg: Ptr) -> SysResult {
        let p = &self.node.ptys[pty];
        let answer = match cmd {
            c::TIOCGPTN => p.number as i32,
            TIOCGPTLCK => i32::from(p.locked),
            TIOCGPKT => i32::from(p.packet),
            TIOCSPTLCK => {
                let on: i32 = self.read_obj(arg)?;
                self.node.ptys[pty].locked = on != 0;
                return Ok(0);
            }
            TIOCPKT => {
                let on: i32 = self.read_obj(arg)?;
                let p = &mut self.node.ptys[pty];
                if on != 0 && !p.packet {
                    p.status = 0;
                }
                p.packet = on != 0;
                return Ok(0);
            }
            TIOCSIG => {
                if ![c::SIGINT, c::SIGQUIT, c::SIGTSTP].contains(&arg.0) {
                    return err(Errno::EINVAL);
                }
                let group = p.group;
                self.node.signal_group(group, arg.0 as u32);
                return Ok(0);
            }
            TIOCGPTPEER => {
                let (slave, flags) = (p.slave, arg.0);
                let kept = flags & (c::O_ACCMODE | c::O_NONBLOCK | c::O_APPEND) | c::O_LARGEFILE;
                self.node.vfs.hold(slave);
                let file = self.open_slave(pty, slave, kept);
                if file.is_err() {
                    self.node.vfs.close_ref(slave, false);
                }
                let file = file?;
                let readable = file.readable();
                let fd = self.open_file(file, flags & c::O_CLOEXEC != 0)?;
                if flags & c::O_NOCTTY == 0 && readable {
                    self.may_take_terminal(pty);
                }
                return Ok(fd);
            }
            _ => return err(Errno::ENOTTY),
        };
        self.write_obj(arg, &answer)?;
        Ok(0)
    }

    fn get_modes(&mut self, pty: PtyId, second: bool, arg: Ptr) -> SysResult {
        let p = &self.node.ptys[pty];
        let (termios, speeds) = (p.termios, p.speeds);
        self.write_obj(arg, &termios)?;
        if second {
            let at = size_of::<Termios>() as u64;
            self.write_obj(Ptr(arg.0.wrapping_add(at)), &speeds[0])?;
            self.write_obj(Ptr(arg.0.wrapping_add(at + 4)), &speeds[1])?;
        }
        Ok(0)
    }

    /// TCGETA: `struct termio`, the low halves of the modes, the line and the first eight characters.
    fn get_termio(&mut self, pty: PtyId, arg: Ptr) -> SysResult {
        let t = self.node.ptys[pty].termios;
        let mut out = Vec::new();
        for modes in [t.iflag, t.oflag, t.cflag, t.lflag] {
            out.extend_from_slice(&(modes as u16).to_le_bytes());
        }
        out.push(t.line);
        out.extend_from_slice(&t.cc[..TERMIO_CC]);
        // The padding of the structure.
        out.push(0);
        self.write_bytes(arg.0, &out)?;
        Ok(0)
    }

    /// The modes with what a `struct termio` says in its place (the high halves stay: user_termio_to_kernel_termios of Linux).
    fn read_termio(&mut self, pty: PtyId, arg: Ptr) -> SysResult<Termios> {
        let low: [u16; 4] = self.read_obj(arg)?;
        let rest: [u8; 1 + TERMIO_CC] = self.read_obj(Ptr(arg.0.wrapping_add(8)))?;
        let mut t = self.node.ptys[pty].termios;
        let modes = [&mut t.iflag, &mut t.oflag, &mut t.cflag, &mut t.lflag];
        for (modes, low) in modes.into_iter().zip(low) {
            *modes = *modes & !0xffff | u32::from(low);
        }
        t.line = rest[0];
        t.cc[..TERMIO_CC].copy_from_slice(&rest[1..]);
        Ok(t)
    }

    /// TCSETS and its kind: with `flush` what was typed and not read is dropped. Output need not be waited for.
    fn set_modes(&mut self, pty: PtyId, form: Form, flush: bool, arg: Ptr) -> SysResult {
        self.check_foreground(pty, c::SIGTTOU)?;
        let mut given = self.node.ptys[pty].speeds;
        let mut termios = match form {
            Form::Termio => self.read_termio(pty, arg)?,
            Form::Plain | Form::WithSpeeds => self.read_obj(arg)?,
        };
        if form == Form::WithSpeeds {
            let at = arg.0.wrapping_add(size_of::<Termios>() as u64);
            given = [self.read_obj(Ptr(at))?, self.read_obj(Ptr(at.wrapping_add(4)))?];
        }
        let p = &mut self.node.ptys[pty];
        if flush {
            p.flush_input();
        }
        let old = p.termios;
        // pty_set_termios of Linux.
        termios.cflag = termios.cflag & !(modes::CSIZE | modes::PARENB) | modes::CS8 | modes::CREAD;
        p.termios = termios;
        p.speeds = modes::speeds(termios.cflag, given);
        let flow = |t: &Termios| {
            t.iflag & modes::IXON != 0 && t.cc[modes::VSTOP] == 0x13 && t.cc[modes::VSTART] == 0x11
        };
        let external = (old.lflag | termios.lflag) & modes::EXTPROC != 0;
        if external || flow(&old) != flow(&termios) {
            let set = if flow(&termios) { packet::DOSTOP } else { packet::NOSTOP };
            let set = set | if external { packet::IOCTL } else { 0 };
            p.tell_master(packet::DOSTOP | packet::NOSTOP, set);
        }
        p.modes_changed((old.iflag, old.lflag));
        self.node.tty_pump(pty);
        self.node.tell_output(pty);
        Ok(0)
    }

    /// "When the window size changes, a SIGWINCH signal is sent to the foreground process group."
    fn set_size(&mut self, pty: PtyId, arg: Ptr) -> SysResult {
        let size: Winsize = self.read_obj(arg)?;
        let p = &mut self.node.ptys[pty];
        if p.size != size {
            p.size = size;
            let group = p.group;
            self.node.signal_group(group, c::SIGWINCH as u32);
        }
        Ok(0)
    }

    /// TIOCGPGRP, TIOCGSID: of the slave only to those whose terminal it is.
    fn get_group(&mut self, pty: PtyId, master: bool, cmd: u64, arg: Ptr) -> SysResult {
        if !master && self.process().tty != Some(pty) {
            return err(Errno::ENOTTY);
        }
        let (p, ns) = (&self.node.ptys[pty], self.pid_ns());
        let answer = match cmd {
            TIOCGSID => Some(p.session.ok_or(Errno::ENOTTY)?),
            _ => p.group,
        };
        let number = answer.map_or(0, |pid| pid.number_in(ns));
        self.write_obj(arg, &number)?;
        Ok(0)
    }

    fn set_group(&mut self, pty: PtyId, arg: Ptr) -> SysResult {
        match self.check_foreground(pty, c::SIGTTOU) {
            Err(Stop::Errno(Errno::EIO)) => return err(Errno::ENOTTY),
            checked => checked?,
        }
        let number: i32 = self.read_obj(arg)?;
        let number = u32::try_from(number).map_err(|_| Errno::EINVAL)?;
        let (own, sid) = (self.process().tty, self.process().sid);
        if own != Some(pty) || self.node.ptys[pty].session != Some(sid) {
            return err(Errno::ENOTTY);
        }
        let group = self.pid_ns().pid(number);
        // find_vpid: any number that is in use, as a process, a group or a session.
        let names = |p: &Process| p.pgid == group || p.pid == group || p.sid == group;
        if !self.node.processes.values().any(names) {
            return err(Errno::ESRCH);
        }
        if !self.node.processes.values().any(|p| p.pgid == group && p.sid == sid) {
            return err(Errno::EPERM);
        }
        self.node.ptys[pty].group = Some(group);
        Ok(0)
    }

    /// tcflow(3) and tcflush(3).
    fn control_flow(&mut self, (pty, master): (PtyId, bool), cmd: u64, arg: Ptr) -> SysResult {
        self.check_foreground(pty, c::SIGTTOU)?;
        let p = &mut self.node.ptys[pty];
        match (cmd, arg.0) {
            (_, 4..) => return err(Errno::EINVAL),
            (TCFLSH, 3) => return err(Errno::EINVAL),
            (TCFLSH, which) if master => {
                // The master's input is the slave's output, and the other way.
                if which != 1 {
                    p.output.clear();
                }
                if which != 0 {
                    p.input.flip.clear();
                }
            }
            (TCFLSH, which) => {
                if which != 1 {
                    p.input.flip.clear();
                    p.flush_input();
                }
                if which != 0 {
                    p.flush_output();
                }
            }
            (_, 0 | 1) if master => p.silent = arg.0 == 0,
            // The characters of a master are those that a new terminal has; they go past a master that is silent (tty_send_xchar).
            (_, which) if master => {
                let index = if which == 2 { modes::VSTOP } else { modes::VSTART };
                p.input.flip.push_back(modes::initial().cc[index]);
            }
            (_, 0) => {
                if !p.held {
                    p.held = true;
                    p.stop();
                }
            }
            (_, 1) => {
                if p.held {
                    p.held = false;
                    p.start();
                }
            }
            (_, which) => {
                let index = if which == 2 { modes::VSTOP } else { modes::VSTART };
                let byte = p.termios.cc[index];
                if byte != 0 {
                    p.output.push_back(byte);
                }
            }
        }
        self.node.tty_pump(pty);
        self.node.tell_output(pty);
        let out = (c::EPOLLOUT | c::EPOLLWRNORM) as u32;
        self.node.notify_object(Object::Tty(pty, !master), out);
        if master && self.node.ptys[pty].typing_room() > 0 {
            self.node.notify_object(Object::Tty(pty, true), out);
        }
        Ok(0)
    }
}

/// Whether a command is the line discipline's business, of which N_NULL has none.
fn of_line(cmd: u64) -> bool {
    let modes = matches!(cmd, c::TCGETS..=TCSETAF | TCGETS2 | TCSETS2..=TCSETSF2);
    modes || [TCXONC, TCFLSH, c::FIONREAD, c::TIOCOUTQ, TIOCGLCKTRMIOS, TIOCSLCKTRMIOS].contains(&cmd)
}

/// What an open of a terminal does beside: without O_NOCTTY it may become the controlling terminal.
pub(super) fn opened(k: &mut Ctx<'_>, file: FileId, flags: u64) {
    let f = &k.node.files[file];
    if let FileKind::Tty { pty, master: false, .. } = f.kind
        && flags & c::O_NOCTTY == 0
        && f.readable()
    {
        k.may_take_terminal(pty);
    }
}
