//! Programs are checked and run as Linux does; `conformance/c/filters.c` asks Linux the same.

use super::*;

fn program(instructions: &[(u16, u8, u8, u32)]) -> Option<Program> {
    let of = |(code, yes, no, k): &(u16, u8, u8, u32)| Instruction { code: *code, yes: *yes, no: *no, k: *k };
    Program::new(instructions.iter().map(of).collect())
}

fn answer(instructions: &[(u16, u8, u8, u32)], bytes: &[u8]) -> u32 {
    kept(instructions, &Packet::message(bytes))
}

fn kept(instructions: &[(u16, u8, u8, u32)], packet: &Packet<'_>) -> u32 {
    let program = program(instructions).expect("a program");
    Filter::new(program.into(), 1).keeps(packet).unwrap_or(0) as u32
}

#[test]
fn instructions_come_back_from_their_bytes() {
    let i = Instruction { code: 0x15, yes: 3, no: 4, k: 0x0102_0304 };
    assert_eq!(Instruction::decode(i.encode()), i);
}

#[test]
fn programs_that_linux_refuses_are_refused() {
    let ret = (0x06, 0, 0, 1);
    for (wrong, what) in [
        (&[][..], "nothing"),
        (&[(0x00, 0, 0, 1)], "no return"),
        (&[(0x0e, 0, 0, 1)], "RET X"),
        (&[(0x34, 0, 0, 0), ret], "a division by zero"),
        (&[(0x94, 0, 0, 0), ret], "a remainder of zero"),
        (&[(0x64, 0, 0, 32), ret], "a shift of 32"),
        (&[(0x02, 0, 0, 16), ret], "memory of 17 words"),
        (&[(0x60, 0, 0, 0), ret], "a load of what was not stored"),
        (&[(0x05, 0, 0, 1), ret], "a jump behind the end"),
        (&[(0x15, 1, 0, 1), ret], "a condition behind the end"),
        (&[(0x20, 0, 0, 0xffff_f040), ret], "an unknown extension"),
        (&[(0x20, 0, 0, 0xffff_f001), ret], "an extension between two"),
        (&[(0xff, 0, 0, 0), ret], "an unknown instruction"),
    ] {
        assert_eq!(program(wrong), None, "{what}");
    }
    assert!(program(&[ret; MOST_INSTRUCTIONS]).is_some());
    assert_eq!(program(&[ret; MOST_INSTRUCTIONS + 1]), None);
    // A place within IND may be any number.
    assert!(program(&[(0x40, 0, 0, 0xffff_f040), ret]).is_some());
}

#[test]
fn data_are_loaded_in_the_order_of_the_network() {
    let bytes = [0x45, 0x12, 0x34, 0x56, 0x78];
    assert_eq!(answer(&[(0x20, 0, 0, 1), (0x16, 0, 0, 0)], &bytes), 0x1234_5678);
    assert_eq!(answer(&[(0x28, 0, 0, 1), (0x16, 0, 0, 0)], &bytes), 0x1234);
    assert_eq!(answer(&[(0x30, 0, 0, 1), (0x16, 0, 0, 0)], &bytes), 0x12);
    // Beyond the end: the program ends with 0.
    assert_eq!(answer(&[(0x20, 0, 0, 2), (0x06, 0, 0, 9)], &bytes), 0);
    // X from the length of a header, then A by it: byte 20 is not there.
    assert_eq!(answer(&[(0xb1, 0, 0, 0), (0x87, 0, 0, 0), (0x16, 0, 0, 0)], &bytes), 20);
    assert_eq!(answer(&[(0xb1, 0, 0, 0), (0x50, 0, 0, 0), (0x06, 0, 0, 9)], &bytes), 0);
    assert_eq!(answer(&[(0x01, 0, 0, 2), (0x48, 0, 0, 1), (0x16, 0, 0, 0)], &bytes), 0x5678);
    assert_eq!(answer(&[(0x80, 0, 0, 0), (0x16, 0, 0, 0)], &bytes), 5);
}

#[test]
fn calculations_end_the_program_where_they_cannot_be_made() {
    let with_x = |x: u32, code: u16| {
        answer(&[(0x00, 0, 0, 7), (0x01, 0, 0, x), (code, 0, 0, 0), (0x16, 0, 0, 0)], &[])
    };
    assert_eq!((with_x(2, 0x3c), with_x(2, 0x9c)), (3, 1));
    assert_eq!((with_x(0, 0x3c), with_x(0, 0x9c)), (0, 0));
    assert_eq!(with_x(33, 0x6c), 14);
    assert_eq!(answer(&[(0x00, 0, 0, 1), (0x84, 0, 0, 0), (0x16, 0, 0, 0)], &[]), u32::MAX);
}

#[test]
fn extensions_tell_what_is_known_of_a_packet() {
    let bytes = [[0; 14], [1; 14]].concat();
    let packet = Packet {
        bytes: &bytes,
        link: Some(0),
        network: 14,
        data: 20,
        payload: Some(24),
        ethertype: 0x86dd,
        kind: 4,
        interface: Some((3, 772)),
    };
    let of = |k: u32, size: u16| kept(&[(size, 0, 0, k), (0x16, 0, 0, 0)], &packet);
    let extension = |number: u32| of(0xffff_f000 + number, 0x20);
    let told: Vec<u32> = (0..56).step_by(4).map(extension).collect();
    assert_eq!(told, [0x86dd, 4, 3, 0, 0, 0, 0, 772, 0, 0, 0, 0, 0, 4]);
    assert_eq!(extension(60), 0);
    assert_eq!(of(0xfff0_0000, 0x28), 0x0101, "from the header of the network");
    assert_eq!(of(0xffe0_0000 + 13, 0x28), 1, "from that of the link");
    assert_eq!(of(0x8000_0000, 0x30), 0, "from nowhere");
    for extension in [0xffff_f008, 0xffff_f01c] {
        let of_message = answer(&[(0x00, 0, 0, 5), (0x20, 0, 0, extension), (0x06, 0, 0, 9)], &[0; 8]);
        assert_eq!(of_message, 5, "without an interface the program ends with what it has");
    }
}

#[test]
fn random_numbers_differ_and_come_again_from_their_seed() {
    let random = program(&[(0x20, 0, 0, 0xffff_f038), (0x16, 0, 0, 0)]).expect("a program");
    assert!(random.instructions().iter().any(Instruction::draws));
    let random = std::sync::Arc::new(random);
    let numbers = |seed: u64| {
        let mut filter = Filter::new(random.clone(), seed);
        [(); 3].map(|()| filter.keeps(&Packet::message(&[])))
    };
    let [first, second, third] = numbers(1);
    assert!(first != second && second != third);
    assert_eq!(numbers(1), [first, second, third]);
    assert_ne!(numbers(2), [first, second, third]);
}

#[test]
fn attributes_of_netlink_are_found() {
    // Type 1 with four bytes, then type 2, which holds one of type 3.
    let bytes = [8, 0, 1, 0, 9, 9, 9, 9, 12, 0, 2, 0x80, 5, 0, 3, 0, 7, 0, 0, 0];
    let find = |extension: u32, at: u32, kind: u32| {
        let program =
            [(0x00, 0, 0, at), (0x01, 0, 0, kind), (0x20, 0, 0, 0xffff_f000 + extension), (0x16, 0, 0, 0)];
        answer(&program, &bytes)
    };
    assert_eq!((find(12, 0, 2), find(12, 0, 3), find(12, 100, 1)), (8, 0, 0));
    assert_eq!((find(16, 8, 3), find(16, 8, 4), find(16, 0, 1)), (12, 0, 0));
}
