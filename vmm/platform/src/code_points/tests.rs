use std::sync::Arc;

use bloodhound_frames::Frame;

use super::observed::{Around, REACH};
use super::*;

/// nop; push rbp; int3; ret; nop; push rbp; xor eax, eax; leave; ret, and so on: no two places are alike.
fn code() -> Frame {
    let mut bytes = Vec::new();
    for n in 0..200_u8 {
        bytes.extend_from_slice(&[0x90, 0x55, 0xb8, n, n.wrapping_mul(3), 0, 0, 0xc3]);
    }
    bytes[22] = 0xcc;
    Frame::from_slice(&bytes)
}

fn page<'a>(points: &'a Arc<FilePoints>, frame: &'a Frame) -> PageOfFile<'a> {
    PageOfFile { file: [1; 32], points, index: 1, original: frame, shown: frame }
}

#[test]
fn a_point_is_there_until_somebody_comes_by() {
    let original = code();
    let points = Arc::new(FilePoints::new(vec![4096 + 9, 4096, 4096 + 22, 8192, 4095, 4096]));
    assert_eq!(points.offsets(), [4095, 4096, 4105, 4118, 8192]);
    let observed = Observed::default();
    let frame = observed.frame(page(&points, &original)).expect("points");
    assert!(frame.same(&observed.frame(page(&points, &original)).expect("points")), "one frame for all");
    assert_eq!((frame.bytes()[0], frame.bytes()[9], frame.bytes()[1]), (0xcc, 0xcc, 0x55));
    assert_eq!(original.bytes()[0], 0x90);
    assert!(points.is_hidden(3), "an int3 of the program is none of ours");
    let mark = Mark::default();
    mark.seed(u64::MAX - 1);
    assert!(observed.reach(frame.offset() + 9, &mark));
    assert_eq!(frame.bytes(), &{
        let mut bytes = *original.bytes();
        bytes[0] = 0xcc;
        bytes
    });
    mark.seed(3);
    assert!(observed.reach(frame.offset() + 9, &mark), "another worker was on its way");
    assert_eq!(points.reached(2), Some(Reached { seed: Some(u64::MAX - 1), fault: None }));
    // Where there are no points.
    for offset in [frame.offset() + 1, frame.offset() + 22, original.offset()] {
        assert!(!observed.reach(offset, &mark));
    }
    let numbers = points.offsets().iter().enumerate().map(|(number, _)| points.reached(number).is_some());
    assert_eq!(numbers.collect::<Vec<_>>(), [false, false, true, false, false]);
}

#[test]
fn a_page_without_points_is_shown_as_it_is() {
    let (original, points) = (code(), Arc::new(FilePoints::new(vec![5])));
    assert_eq!(Observed::default().frame(page(&points, &original)), None);
}

#[test]
fn a_copy_of_code_is_known_by_what_lies_around() {
    let original = code();
    let offsets = (0..200).map(|n| 4096 + 8 * n + 1).collect();
    let points = Arc::new(FilePoints::new(offsets));
    let observed = Observed::default();
    let frame = observed.frame(page(&points, &original)).expect("points");
    let around = |at: usize| -> Around {
        let bytes: Vec<Option<u8>> =
            frame.bytes()[at - REACH..=at + REACH].iter().copied().map(Some).collect();
        bytes.try_into().expect("33 bytes")
    };
    assert_eq!(observed.copied(&around(81)), Some(0x55));
    // A copy may begin or end there: then what lies on one side is something else, or nothing.
    for side in [0..REACH, REACH + 1..2 * REACH + 1] {
        for byte in [None, Some(1)] {
            let mut other = around(81);
            other[side.clone()].fill(byte);
            assert_eq!(observed.copied(&other), Some(0x55), "{side:?} {byte:?}");
        }
    }
    for places in [[11, 28], [15, 17]] {
        let mut other = around(81);
        for place in places {
            other[place] = other[place].map(|byte| byte ^ 1);
        }
        assert_eq!(observed.copied(&other), None, "{places:?}");
    }
    // So much of it could be anything.
    assert_eq!(observed.copied(&[Some(0xcc); 2 * REACH + 1]), None);
    // Gone from the frame, but copied before.
    let before = around(161);
    observed.reach(frame.offset() + 161, &Mark::default());
    assert_eq!(observed.copied(&before), Some(0x55));
    assert!(observed.has_frame(frame.offset() + 7) && !observed.has_frame(original.offset()));
}
