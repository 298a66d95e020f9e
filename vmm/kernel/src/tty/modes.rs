//! Modes of terminals (termios(3)): flags, special characters, speeds.

use bloodhound_abi::structs::Termios;

macro_rules! flags {
    ($($name:ident = $value:literal),* $(,)?) => {
        $(#[allow(missing_docs)] pub const $name: u32 = $value;)*
    };
}
macro_rules! indices {
    ($($name:ident = $value:literal),* $(,)?) => {
        $(#[allow(missing_docs)] pub const $name: usize = $value;)*
    };
}

flags! {
    PARMRK = 0o10, ISTRIP = 0o40, INLCR = 0o100, IGNCR = 0o200, ICRNL = 0o400, IUCLC = 0o1000,
    IXON = 0o2000, IXANY = 0o4000, IMAXBEL = 0o20000, IUTF8 = 0o40000,
    OPOST = 0o1, OLCUC = 0o2, ONLCR = 0o4, OCRNL = 0o10, ONOCR = 0o20, ONLRET = 0o40, TABDLY = 0o14000, XTABS = 0o14000,
    CBAUD = 0o10017, CSIZE = 0o60, CS8 = 0o60, CREAD = 0o200, PARENB = 0o400, CIBAUD_SHIFT = 16,
    ISIG = 0o1, ICANON = 0o2, ECHO = 0o10, ECHOE = 0o20, ECHOK = 0o40, ECHONL = 0o100, NOFLSH = 0o200, TOSTOP = 0o400,
    ECHOCTL = 0o1000, ECHOPRT = 0o2000, ECHOKE = 0o4000, IEXTEN = 0o100000, EXTPROC = 0o200000,
    BOTHER = 0o10000,
}
indices! {
    VINTR = 0, VQUIT = 1, VERASE = 2, VKILL = 3, VEOF = 4, VTIME = 5, VMIN = 6, VSTART = 8, VSTOP = 9, VSUSP = 10,
    VEOL = 11, VREPRINT = 12, VWERASE = 14, VLNEXT = 15, VEOL2 = 16,
}

/// ioctl_tty(2), "Packet mode".
pub mod packet {
    #![allow(missing_docs)]
    pub const FLUSHREAD: u8 = 1;
    pub const FLUSHWRITE: u8 = 2;
    pub const STOP: u8 = 4;
    pub const START: u8 = 8;
    pub const NOSTOP: u8 = 16;
    pub const DOSTOP: u8 = 32;
    pub const IOCTL: u8 = 64;
}

/// Its speed, in both directions.
pub const SPEED: u32 = 38400;

/// The modes of a terminal that was just made (tty_std_termios, INIT_C_CC).
pub fn initial() -> Termios {
    let mut cc = [0; 19];
    let characters = [
        (VINTR, 3),
        (VQUIT, 0x1c),
        (VERASE, 0x7f),
        (VKILL, 0x15),
        (VEOF, 4),
        (VMIN, 1),
        (VSTART, 0x11),
        (VSTOP, 0x13),
        (VSUSP, 0x1a),
        (VREPRINT, 0x12),
        (13, 0x0f), // VDISCARD, which Linux does not know otherwise
        (VWERASE, 0x17),
        (VLNEXT, 0x16),
    ];
    for (index, byte) in characters {
        cc[index] = byte;
    }
    const B38400: u32 = 0o17;
    Termios {
        iflag: ICRNL | IXON,
        oflag: OPOST | ONLCR,
        cflag: B38400 | CS8 | CREAD,
        lflag: ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN,
        line: 0,
        cc,
    }
}

/// The speed that the bits of CBAUD stand for; `None` for BOTHER.
fn speed(bits: u32) -> Option<u32> {
    const SLOW: [u32; 16] =
        [0, 50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19200, 38400];
    const FAST: [u32; 15] = [
        57600, 115_200, 230_400, 460_800, 500_000, 576_000, 921_600, 1_000_000, 1_152_000, 1_500_000,
        2_000_000, 2_500_000, 3_000_000, 3_500_000, 4_000_000,
    ];
    match (bits & BOTHER != 0, bits & 0o17) {
        (false, n) => Some(SLOW[n as usize]),
        (true, 0) => None,
        (true, n) => Some(FAST[n as usize - 1]),
    }
}

/// Input and output speed of these modes, where `given` are those that BOTHER stands for. An input speed of B0 is the output speed.
pub fn speeds(cflag: u32, given: [u32; 2]) -> [u32; 2] {
    let (input, output) = (cflag >> CIBAUD_SHIFT & CBAUD, cflag & CBAUD);
    let output = speed(output).unwrap_or(given[1]);
    [if input == 0 { output } else { speed(input).unwrap_or(given[0]) }, output]
}

/// Whether a character counts as one of control (`iscntrl` of Linux).
pub(super) fn is_control(byte: u8) -> bool {
    byte < 32 || byte == 127
}

/// Whether it is a letter or digit, of ISO 8859-1 as Linux has it.
pub(super) fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0xc0 && !matches!(byte, 0xd7 | 0xf7)
}
