//! Every kind of trap; and application code that goes for the stub's own pages.

use bloodhound_frames::Frame;
use bloodhound_platform::{Access, GUEST_TOP, Prot, Trap};
use bloodhound_platform_ptrace::PtracePlatform;
use bloodhound_platform_tests::{DATA, Guest, PAGE};

fn new(cpu: Option<usize>) -> PtracePlatform {
    PtracePlatform::new(cpu).unwrap()
}

bloodhound_platform_tests::platform_tests!(traps, new);

#[test]
fn a_jump_into_the_stub_is_a_fault_and_does_nothing_on_the_host() {
    let file = std::env::temp_dir().join(format!("bloodhound-stray-{}", std::process::id()));
    std::fs::write(&file, b"x").unwrap();
    let path = format!("{}\0", file.display());
    for entry in 0..64 {
        // jmp rax, with a harmful call prepared: unlink(file).
        let mut guest = Guest::new(new, b"\xff\xe0");
        let data = Frame::from_slice(path.as_bytes());
        guest.pages.insert(DATA, (data, Prot::RW));
        guest.map(DATA);
        guest.regs.rax = GUEST_TOP + entry;
        // A jump to the SYSCALL entry itself needs rax to be both target and number; so go one before the jump:
        // `mov eax, 87` cannot be in between. Entries behind it take rax as it is.
        guest.regs.rdi = DATA;
        guest.regs.rbp = 1; // the batch loop: one command, from our own data
        guest.regs.rbx = DATA + 2048;
        let mut command = [0u8; 56];
        command[..8].copy_from_slice(&(libc::SYS_unlink as u64).to_le_bytes());
        command[8..16].copy_from_slice(&DATA.to_le_bytes());
        guest.pages[&DATA].0.write_shared(2048, &command);
        match guest.run() {
            Trap::PageFault { addr, access: Some(Access::Exec), rip } => assert_eq!(addr, rip),
            // A jump into the middle of an instruction may decode to anything that traps by itself.
            Trap::Exception(_) | Trap::PageFault { .. } => {}
            other => panic!("entry {entry}: {other:?}"),
        }
    }
    assert!(file.exists(), "the application's call reached the host");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn the_stubs_pages_cannot_be_written() {
    // mov [rdi], eax
    for page in 0..5 {
        let mut guest = Guest::new(new, b"\x89\x07");
        guest.regs.rdi = GUEST_TOP + page * PAGE + 8;
        assert!(matches!(guest.run(), Trap::PageFault { addr, .. } if addr == guest.regs.rdi));
    }
}
