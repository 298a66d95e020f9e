use super::*;

/// What a piece of code asks for that begins at address 0x1000.
fn asked(code: &[u8], names: &[(u64, &str)]) -> Vec<String> {
    let names = names.iter().map(|(at, name)| (*at, (*name).to_owned())).collect();
    let mut scan = Scan { names, ..Scan::default() };
    scan.code(0x1000, code);
    scan.found.into_keys().map(|request| request.text()).collect()
}

#[test]
fn constants_reach_the_instruction() {
    // mov eax, 101; mov edi, 16; syscall
    assert_eq!(asked(&[0xb8, 101, 0, 0, 0, 0xbf, 16, 0, 0, 0, 0x0f, 0x05], &[]), ["ptrace"]);
    // mov eax, 41; mov edi, 40; mov esi, 1; xor edx, edx; syscall
    let socket = [0xb8, 41, 0, 0, 0, 0xbf, 40, 0, 0, 0, 0xbe, 1, 0, 0, 0, 0x31, 0xd2, 0x0f, 0x05];
    assert_eq!(asked(&socket, &[]), ["socket(AF_VSOCK, SOCK_STREAM, 0)"]);
    // mov eax, 101; pop rax; syscall: nobody knows
    assert_eq!(asked(&[0xb8, 101, 0, 0, 0, 0x58, 0x0f, 0x05], &[]), Vec::<String>::new());
}

#[test]
fn functions_are_known_by_name() {
    // mov edi, 425; xor eax, eax; call 0x2000
    let call = |from: u64| ((0x2000 - (from + 5)) as u32).to_le_bytes();
    let code = [&[0xbf, 0xa9, 1, 0, 0, 0x31, 0xc0, 0xe8][..], &call(0x1007)].concat();
    assert_eq!(asked(&code, &[(0x2000, "syscall")]), ["io_uring_setup"]);
    assert_eq!(asked(&code, &[(0x2000, "prctl")]), ["prctl(0x1a9, ?, ?, ?, ?)"]);
    assert_eq!(asked(&code, &[(0x2000, "puts")]), Vec::<String>::new());
    // mov eax, 425; call 0x2000, as Go does it
    let code = [&[0xb8, 0xa9, 1, 0, 0, 0xe8][..], &call(0x1005)].concat();
    assert_eq!(asked(&code, &[(0x2000, "syscall.RawSyscall6")]), ["io_uring_setup"]);
}
