//! Packet sockets (packet(7)): making and naming them, and their options. The frames are the network stack's.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::{Proto, SocketId};

use crate::caps::CAP_NET_RAW;
use crate::ctx::*;
use crate::inet::{InetSocket, Interface, interfaces};
use crate::socket::{Address, Generic};
use crate::sys::socket::Sock;
use crate::wait::SysResult;

/// `struct sockaddr_ll`, and where its hardware address begins.
const ADDRESS: usize = 20;
const HARDWARE: usize = 12;
/// ARPHRD_ETHER and ARPHRD_LOOPBACK.
const ETHER: u16 = 1;
const LOOPBACK: u16 = 772;
/// SOCK_PACKET, of which netdevice(7) says that it is obsolete.
const SOCK_PACKET: u64 = 10;
/// SOL_PACKET and its options: PACKET_ADD_MEMBERSHIP, PACKET_DROP_MEMBERSHIP, PACKET_STATISTICS, PACKET_AUXDATA, PACKET_ORIGDEV,
/// PACKET_QDISC_BYPASS, PACKET_IGNORE_OUTGOING.
pub(crate) const SOL_PACKET: u64 = 263;
const ADD_MEMBERSHIP: u64 = 1;
const DROP_MEMBERSHIP: u64 = 2;
const STATISTICS: u64 = 6;
pub(crate) const AUXDATA: u64 = 8;
const ORIGDEV: u64 = 9;
const QDISC_BYPASS: u64 = 20;
const IGNORE_OUTGOING: u64 = 23;
/// `struct packet_mreq`.
const MREQ: u32 = 16;

/// `struct sockaddr_ll` of an interface with a hardware address, cut after `len` bytes.
pub(crate) fn sockaddr_ll(ethertype: u16, index: u32, kind: u8, hardware: [u8; 6], len: usize) -> Vec<u8> {
    let mut out = (c::AF_PACKET as u16).to_le_bytes().to_vec();
    out.extend_from_slice(&ethertype.to_be_bytes());
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&if index == 1 { LOOPBACK } else { ETHER }.to_le_bytes());
    out.extend_from_slice(&[kind, 6]);
    out.extend_from_slice(&hardware);
    out.resize(len, 0);
    out
}

/// Type of frames and interface of a `struct sockaddr_ll`. EINVAL.
fn type_and_interface(addr: &Address) -> Result<(u16, u32), Errno> {
    if addr.family() != Some(c::AF_PACKET) {
        return Err(Errno::EINVAL);
    }
    parts(addr.bytes())
}

/// Type of frames and interface by the address to which a frame is sent: its family is not looked at, but the length of the hardware address is
/// (packet_snd). EINVAL.
pub(crate) fn receiver_of_frame(addr: &Address) -> Result<(u16, u32), Errno> {
    let bytes = addr.bytes();
    let hardware = bytes.get(HARDWARE - 1).copied().unwrap_or(0);
    if bytes.len() < HARDWARE + usize::from(hardware) {
        return Err(Errno::EINVAL);
    }
    parts(bytes)
}

fn parts(bytes: &[u8]) -> Result<(u16, u32), Errno> {
    if bytes.len() < ADDRESS {
        return Err(Errno::EINVAL);
    }
    let index = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    Ok((u16::from_be_bytes([bytes[2], bytes[3]]), index))
}

impl Ctx<'_> {
    /// socket(2) of AF_PACKET: "only processes with effective UID 0 or the CAP_NET_RAW capability may open packet sockets" (packet(7)).
    pub(super) fn create_packet(&mut self, kind: u64, protocol: u64) -> Result<SocketId, Errno> {
        if !self.capable(CAP_NET_RAW) {
            return Err(Errno::EPERM);
        }
        let whole = match kind {
            c::SOCK_RAW => true,
            c::SOCK_DGRAM => false,
            // As without its old interface.
            SOCK_PACKET => return Err(Errno::ESOCKTNOSUPPORT),
            _ => return Err(Errno::ESOCKTNOSUPPORT),
        };
        // "protocol is the IEEE 802.3 protocol number in network byte order".
        let ethertype = (protocol as u16).swap_bytes();
        let net = self.container().net;
        let id = self.node.net.stack_mut(net).packet_socket(whole, ethertype);
        let generic = Generic::new(self.credentials().cred.uid);
        self.node.inet.insert(
            id,
            InetSocket { v6: false, proto: Proto::Packet, number: 0, generic, corked: None, looked: false },
        );
        Ok(id)
    }

    fn interface_at(&self, id: SocketId, index: u32) -> Option<Interface> {
        interfaces(self.node.net.of(id)).into_iter().find(|i| i.index as u32 == index)
    }

    /// bind(2). ENODEV for an interface that there is not.
    pub(super) fn bind_packet(&mut self, id: SocketId, addr: &Address) -> Result<(), Errno> {
        let (ethertype, index) = type_and_interface(addr)?;
        if index != 0 && self.interface_at(id, index).is_none() {
            return Err(Errno::ENODEV);
        }
        self.node.net.of_mut(id).bind_packet(id, ethertype, index)
    }

    /// getsockname(2): without an interface there is no hardware address (packet_getname).
    pub(super) fn packet_name(&self, id: SocketId) -> Result<Vec<u8>, Errno> {
        let (ethertype, index, _) = self.node.net.of(id).packet_name(id)?;
        let Some(interface) = self.interface_at(id, index) else {
            let mut none = sockaddr_ll(ethertype, 0, 0, [0; 6], HARDWARE);
            none[8..].fill(0);
            return Ok(none);
        };
        Ok(sockaddr_ll(ethertype, index, 0, interface.hardware(), HARDWARE + 6))
    }

    /// setsockopt(2) at SOL_PACKET. Rings and what goes with them are refused with ENOPROTOOPT, as by a kernel before them.
    pub(crate) fn set_packet_option(
        &mut self,
        id: SocketId,
        name: u64,
        value: Ptr,
        len: u32,
    ) -> SysResult<()> {
        match name {
            ADD_MEMBERSHIP | DROP_MEMBERSHIP => {
                if len < MREQ {
                    return err(Errno::EINVAL);
                }
                let [index, ..]: [u32; 4] = self.read_obj(value)?;
                // A switched network brings nothing that is for others: promiscuous or not, the same comes by.
                if name == ADD_MEMBERSHIP && self.interface_at(id, index).is_none() {
                    return err(Errno::ENODEV);
                }
                Ok(())
            }
            AUXDATA | ORIGDEV | QDISC_BYPASS | IGNORE_OUTGOING => {
                if len < 4 || name == IGNORE_OUTGOING && len != 4 {
                    return err(Errno::EINVAL);
                }
                let number: i32 = self.read_obj(value)?;
                match (name, number) {
                    (IGNORE_OUTGOING, 0 | 1) => self.node.net.of_mut(id).ignore_outgoing(id, number == 1)?,
                    (IGNORE_OUTGOING, _) => return err(Errno::EINVAL),
                    _ => {}
                }
                let on = i32::from(number != 0);
                self.generic(Sock::Packet(id))?.kept.insert((SOL_PACKET, name), on);
                Ok(())
            }
            _ => err(Errno::ENOPROTOOPT),
        }
    }

    /// getsockopt(2) at SOL_PACKET.
    pub(crate) fn get_packet_option(&mut self, id: SocketId, name: u64) -> SysResult<Vec<u8>> {
        match name {
            STATISTICS => {
                let (packets, drops) = self.node.net.of_mut(id).take_packet_counts(id)?;
                Ok([packets.to_le_bytes(), drops.to_le_bytes()].concat())
            }
            AUXDATA | ORIGDEV | QDISC_BYPASS | IGNORE_OUTGOING => {
                let on = self.inet(id)?.generic.is_set(SOL_PACKET, name);
                Ok(i32::from(on).to_le_bytes().to_vec())
            }
            _ => err(Errno::ENOPROTOOPT),
        }
    }
}
