//! Tests of the handle's counting, copy-on-write, reuse and thread safety.

use super::*;
use std::os::fd::AsRawFd;

#[test]
fn handle_is_four_bytes_with_a_niche() {
    assert_eq!((size_of::<Frame>(), size_of::<Option<Frame>>()), (4, 4));
}

#[test]
fn zeroed_even_when_recycled() {
    for round in 0..300 {
        let mut frame = Frame::zeroed();
        assert!(frame.bytes().iter().all(|&b| b == 0), "round {round}");
        frame.make_unique().fill(0xa5);
    }
}

#[test]
fn a_run_rises() {
    let run = Frame::zeroed_run(40);
    assert_eq!(run.len(), 40);
    assert!(run.windows(2).all(|w| w[0].offset() < w[1].offset()));
    assert!(run.iter().all(|f| f.is_unique() && f.bytes() == &[0; FRAME_SIZE]));
}

#[test]
fn a_run_of_copies_keeps_their_order() {
    let sources: Vec<Frame> = (0..20).map(|n| Frame::from_bytes(&[n; FRAME_SIZE])).collect();
    let run = Frame::copied_run(sources.iter().rev().map(Frame::bytes));
    assert!(run.windows(2).all(|w| w[0].offset() < w[1].offset()));
    assert!(run.iter().zip(sources.iter().rev()).all(|(copy, source)| copy == source && !copy.same(source)));
}

#[test]
fn clone_shares_and_write_copies() {
    let mut a = Frame::from_bytes(&[7; FRAME_SIZE]);
    assert!(a.is_unique());
    let b = a.clone();
    assert!(!a.is_unique() && a.same(&b) && a.bytes_mut().is_none());
    let before = a.offset();
    a.make_unique()[3] = 9;
    assert_ne!(a.offset(), before, "a shared frame is copied");
    assert_eq!((a.bytes()[3], b.bytes()[3], a.bytes()[4]), (9, 7, 7));
    assert!(a.is_unique() && b.is_unique() && a != b);
    let before = a.offset();
    a.make_unique()[3] = 7;
    assert_eq!(a.offset(), before, "a unique frame is written in place");
    assert_eq!(a, b);
}

#[test]
fn shared_zero_is_never_unique() {
    let mut zero = Frame::shared_zero();
    assert!(zero.is_shared_zero() && !zero.is_unique() && zero.bytes_mut().is_none());
    zero.make_unique()[0] = 1;
    assert!(!zero.is_shared_zero());
    assert_eq!(Frame::shared_zero().bytes()[0], 0);
}

#[test]
fn shared_writes_are_seen_through_every_handle() {
    let a = Frame::zeroed();
    let b = a.clone();
    a.write_shared(4092, &[1, 2, 3, 4]);
    let mut out = [0; 4];
    b.read(4092, &mut out);
    assert_eq!(out, [1, 2, 3, 4]);
    assert_eq!(b.load_u32(4092), 0x0403_0201);
    assert_eq!(b.compare_exchange_u32(4092, 5, 6), Err(0x0403_0201));
    assert_eq!(b.compare_exchange_u32(4092, 0x0403_0201, 6), Ok(0x0403_0201));
    assert_eq!(a.load_u64(4088), 6 << 32);
}

#[test]
#[should_panic(expected = "leaves the frame")]
fn access_past_the_end_is_refused() {
    Frame::zeroed().write_shared(4093, &[0; 4]);
}

#[test]
fn the_file_holds_the_bytes() {
    let frame = Frame::from_slice(b"found in the file");
    let mut out = [0u8; 17];
    // SAFETY: reads into a live local buffer of the given length.
    let got = unsafe {
        libc::pread(arena_fd().as_raw_fd(), out.as_mut_ptr().cast(), out.len(), frame.offset() as libc::off_t)
    };
    assert_eq!((got, &out), (17, b"found in the file"));
}

#[test]
fn access_by_offset_stays_in_the_arena() {
    let frame = Frame::zeroed();
    assert_eq!(write_at(frame.offset() + 8, &[5; 8]), Some(()));
    let mut out = [0; 4];
    assert_eq!(read_at(frame.offset() + 14, &mut out), Some(()));
    assert_eq!(out, [5, 5, 0, 0]);
    for at in [0, 4095, (64 << 30) - 3, u64::MAX - 1] {
        assert_eq!(read_at(at, &mut out), None, "{at:#x}");
    }
}

#[test]
fn debug_shows_no_number() {
    assert_eq!(format!("{:?}", Frame::zeroed()), "Frame");
}

#[test]
fn threads_allocate_share_and_free() {
    let common = Frame::from_bytes(&[0x11; FRAME_SIZE]);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let common = &common;
            scope.spawn(move || {
                let mut kept: Vec<Frame> = Vec::new();
                for round in 0..2000usize {
                    let mut mine = common.clone();
                    mine.make_unique()[0] = thread;
                    assert_eq!(mine.bytes()[1], 0x11);
                    if round % 3 == 0 {
                        kept.push(mine);
                    }
                    if kept.len() > 300 {
                        assert!(kept.iter().all(|f| f.bytes()[0] == thread && f.is_unique()));
                        kept.truncate(10);
                    }
                }
            });
        }
    });
    assert!(common.is_unique());
    assert_eq!(common.bytes(), &[0x11; FRAME_SIZE]);
    let Stats { high_water, .. } = stats();
    assert!(high_water < 20_000, "freed frames are reused, yet {high_water} were taken");
}
