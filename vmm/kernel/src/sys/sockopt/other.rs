//! Options without an arm of their own: unknown ones fail with ENOPROTOOPT, those that Linux 6.1 knows stop the run by
//! name, unless programs merely probe them and fall back.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::names;

use crate::ctx::*;
use crate::wait::{Stop, SysResult};

/// Which of the two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Set,
    Get,
}

/// What programs ask for and do without: message zero-copy, sending times, segments of datagrams, and groups of the peer.
const PROBED: [(u64, u64); 5] = [
    (c::SOL_SOCKET, 59),
    (c::SOL_SOCKET, 60),
    (c::SOL_SOCKET, 61),
    (c::IPPROTO_UDP, 103),
    (c::IPPROTO_UDP, 104),
];
/// There is nothing of the name to set, to get.
const READ_ONLY: [(u64, &[u64]); 4] = [
    (c::SOL_SOCKET, &[3, 4, 17, 19, 28, 30, 31, 38, 39, 48, 55, 56, 57, 71]),
    (c::IPPROTO_IP, &[3, 9, 14, 22]),
    (c::IPPROTO_IPV6, &[7, 22, 36, 52, 61]),
    (c::IPPROTO_TCP, &[11, 26, 28, 35]),
];
const WRITE_ONLY: [(u64, &[u64]); 4] = [
    (c::SOL_SOCKET, &[27, 31, 32, 33, 50, 51, 52, 53, 68, 70]),
    (c::IPPROTO_IP, &[16, 17, 35, 36, 37, 38, 39, 40, 42, 43, 44, 45, 46, 47]),
    (c::IPPROTO_IPV6, &[7, 20, 21, 27, 28, 34, 35, 36, 42, 43, 44, 45, 46, 47, 50, 52]),
    (c::IPPROTO_TCP, &[14, 22, 32]),
];
/// Setting them needs CAP_NET_ADMIN: IPsec policies, TCP_REPAIR and what goes with it.
const ADMIN: [(u64, &[u64]); 3] =
    [(c::IPPROTO_IP, &[16, 17]), (c::IPPROTO_IPV6, &[34, 35]), (c::IPPROTO_TCP, &[19, 20, 24, 29])];

fn listed(table: &[(u64, &[u64])], level: u64, name: u64) -> bool {
    table.iter().any(|(l, options)| *l == level && options.contains(&name))
}

/// What becomes of the option.
pub(super) fn other<T>(call: Call, level: u64, name: u64) -> SysResult<T> {
    let missing = match call {
        Call::Set => listed(&READ_ONLY, level, name),
        Call::Get => listed(&WRITE_ONLY, level, name),
    };
    if missing || PROBED.contains(&(level, name)) {
        return err(Errno::ENOPROTOOPT);
    }
    match (call, level, name) {
        (Call::Set, ..) if listed(&ADMIN, level, name) => return err(Errno::EPERM),
        // SO_DETACH_REUSEPORT_BPF of what is not attached; IP_ROUTER_ALERT of what is no raw socket.
        (Call::Set, c::SOL_SOCKET, 68) => return err(Errno::ENOENT),
        (Call::Set, c::IPPROTO_IP, 5) => return err(Errno::EINVAL),
        // TCP_QUEUE_SEQ and TCP_REPAIR_OPTIONS of what is not repaired.
        (Call::Set, c::IPPROTO_TCP, 21 | 22) => return err(Errno::EINVAL),
        _ => {}
    }
    let known = names::name_of(names::socket_options(level), name).ok_or(Errno::ENOPROTOOPT)?;
    let call = if call == Call::Set { "setsockopt" } else { "getsockopt" };
    Err(Stop::Unsupported(format!("{call} {known}")))
}
