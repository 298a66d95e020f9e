//! Sending to and receiving from packet sockets (packet(7)).

use bloodhound_abi::Errno;
use bloodhound_net::{Frame, SocketId};

use super::datagram::received;
use super::transfer::truncation;
use super::{Got, Incoming, Outgoing};
use crate::ctx::*;
use crate::sys::socket::{AUXDATA, SOL_PACKET, receiver_of_frame, sockaddr_ll};
use crate::wait::{Object, Stop, SysResult};

/// `struct sockaddr_ll` as a receiver gets it: whole, whatever the length of the hardware address (packet_recvmsg).
const ADDRESS: usize = 20;

impl Ctx<'_> {
    /// send(2). What is no packet of IP is not modelled: no node would answer it.
    pub(super) fn send_packet(&mut self, id: SocketId, msg: &Outgoing) -> SysResult {
        let to = msg.to.as_ref().map(receiver_of_frame).transpose()?;
        let data = self.source_bytes(&msg.source, 0, msg.source.len().min(1 << 17))?;
        let now = self.node.clock;
        match self.node.net.of_mut(id).send_frame(id, &data, to, now) {
            Ok(sent) => Ok(sent as u64),
            Err(Errno::EPROTONOSUPPORT) => {
                Err(Stop::Unsupported("a frame of a packet socket that is no whole packet of IP".into()))
            }
            Err(e) => err(e),
        }
    }

    pub(super) fn recv_packet(&mut self, id: SocketId, want: &Incoming) -> SysResult<Got> {
        let timeout = self.inet(id)?.generic.rcvtimeo;
        let things = self.node.net.of_mut(id).receptions(id)?;
        self.keep_in_line(Object::Inet(id), things, timeout)?;
        let frame = match self.node.net.of_mut(id).recv_frame(id, want.flags.contains(MsgFlags::MSG_PEEK)) {
            Ok(frame) => frame,
            Err(Errno::EAGAIN) if self.must_not_sleep(want.nonblock, timeout) => return err(Errno::EAGAIN),
            Err(Errno::EAGAIN) => return Err(self.wait_in_line(Object::Inet(id), timeout).into()),
            Err(e) => return err(e),
        };
        self.has_got(Object::Inet(id), want.flags.contains(MsgFlags::MSG_PEEK));
        let whole = frame.data.len() as u64;
        let n = whole.min(want.buffers.len());
        let name = sockaddr_ll(frame.ethertype, frame.interface, frame.kind as u8, frame.from, ADDRESS);
        let generic = &self.inet(id)?.generic;
        let mut control = received(generic, self.node.realtime_at(frame.at));
        if generic.is_set(SOL_PACKET, AUXDATA) {
            let inner = self.node.net.of(id).packet_name(id)?.2;
            control.push((SOL_PACKET, AUXDATA, auxiliary(&frame, inner)));
        }
        let mut got = Got { name, control, ..Got::default() };
        self.copy_out(&want.buffers, 0, &frame.data[..n as usize])?;
        truncation(&mut got, want.flags, n, whole);
        Ok(got)
    }
}

/// `struct tpacket_auxdata`: status, length, length without what a filter has cut off, places of the headers of the link and the network, no VLAN.
fn auxiliary(frame: &Frame, with_link: bool) -> Vec<u8> {
    /// TP_STATUS_USER and TP_STATUS_CSUMNOTREADY.
    const USER: u32 = 1;
    const UNSUMMED: u32 = 1 << 3;
    let status = USER | if frame.unsummed { UNSUMMED } else { 0 };
    let mut out = [status, frame.whole, frame.data.len() as u32].map(u32::to_le_bytes).concat();
    let network: u16 = if with_link { 14 } else { 0 };
    out.extend([0, network, 0, 0].map(u16::to_le_bytes).concat());
    out
}
