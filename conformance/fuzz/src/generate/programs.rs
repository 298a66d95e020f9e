//! Filters of unix sockets: small programs of classic BPF, good ones and bad ones (linux/filter.h).

use super::model::{Kind, Model};

/// Instructions that load, store, calculate and jump; some are in no list of Linux.
const CODES: &[u16] = &[
    0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0xb1, 0x80, 0x81, 0x00, 0x01, 0x60, 0x61, 0x02, 0x03, 0x04, 0x0c,
    0x14, 0x1c, 0x24, 0x34, 0x3c, 0x44, 0x54, 0x64, 0x6c, 0x74, 0x84, 0x94, 0x9c, 0xa4, 0xac, 0x05, 0x15,
    0x1d, 0x25, 0x35, 0x45, 0x07, 0x87, 0x0e, 0x99,
];

/// Places and numbers: within a message, beyond it, SKF_AD_PROTOCOL, PKTTYPE, IFINDEX, NLATTR, ALU_XOR_X, PAY_OFFSET and none such, SKF_NET_OFF, SKF_LL_OFF.
const NUMBERS: &[i64] = &[
    0, 1, 2, 4, 0, 1, 3, 15, 16, 31, 32, 97, 5000, -4096, -4092, -4088, -4084, -4056, -4044, -4032,
    -0x10_0000, -0x20_0000, -1,
];

fn instruction(m: &mut Model) -> String {
    let (code, k) = (m.rng.pick(CODES), m.rng.pick(NUMBERS) as u32);
    let jumps = code & 7 == 5;
    let [yes, no] = [0; 2].map(|_: u64| if jumps { m.rng.below(3) } else { 0 });
    let k = if code == 0x05 { k & 1 } else { k };
    format!("2:{code:#x} 1:{yes} 1:{no} 4:{k:#x}")
}

/// SO_ATTACH_FILTER, or what else there is about filters.
pub fn filter(m: &mut Model) {
    let (fd, actor) = (m.fd(&[Kind::Unix]), m.actor());
    match m.rng.below(8) {
        0 => m.op(format!("{actor} . setsockopt {fd} 1 27 [ 4:0 ] 4")),
        1 if m.rng.one_in(3) => m.op(format!("{actor} . setsockopt {fd} 1 44 [ 4:1 ] 4")),
        1 | 2 => {
            let room = m.rng.pick(&[0, 1, 4, 8]);
            m.op(format!("{actor} . getsockopt {fd} 1 26 <64 [ 4:{room} ]?"));
        }
        _ => {
            let mut program: Vec<String> = (0..m.rng.below(5)).map(|_| instruction(m)).collect();
            let (code, k) = (m.rng.pick(&[0x06, 0x06, 0x16]), m.rng.pick(&[0, 1, 3, 0xffff_ffff_u32]));
            program.push(format!("2:{code:#x} 1:0 1:0 4:{k:#x}"));
            let count = program.len() as u64 + u64::from(m.rng.one_in(20));
            let size = m.rng.pick(&[16, 16, 16, 16, 16, 16, 8]);
            let program = program.join(" ");
            m.op(format!("{actor} . setsockopt {fd} 1 26 [ 2:{count} 2:0 4:0 *[ {program} ] ] {size}"));
        }
    }
}
