//! The error queue of sockets of datagrams over the fabric: reports from other nodes, datagrams that are too long, times of sending.

mod common;
use bloodhound_abi::Errno;
use bloodhound_net::*;
use common::*;

fn udp(net: &mut Net, node: usize, port: u16) -> SocketId {
    let id = net.stacks[node].udp_socket(false);
    net.stacks[node].bind(id, any(port)).expect("a free port");
    id
}

#[test]
fn a_closed_port_of_another_node_is_reported_with_what_was_sent() {
    let mut net = Net::new(2, LinkConfig::default(), 7);
    let id = udp(&mut net, 0, 1000);
    net.stacks[0].set_option(id, SockOpt::RecvErr(true), net.now).unwrap();
    net.stacks[0].send_to(id, b"lost", Some(at(1, 53)), net.now).unwrap();
    net.run(SEC);
    let report = net.stacks[0].recv_report(id, net.now).expect("a report");
    assert_eq!(&*report.data, b"lost");
    let Cause::Icmp { error, kind, offender, dst, came } = report.cause else { panic!("{:?}", report.cause) };
    assert_eq!((error, kind, offender), (Errno::ECONNREFUSED, [3, 3], ip(1)));
    assert_eq!((dst, came.0), (at(1, 53), ip(0)));
    assert_eq!(net.stacks[0].recv_report(id, net.now), Err(Errno::EAGAIN));
    // The error was taken along with its report.
    assert_eq!(net.stacks[0].take_error(id), Ok(None));
}

#[test]
fn what_does_not_fit_into_one_packet_is_refused_where_none_may_be_cut() {
    let mut net = Net::new(2, LinkConfig::default(), 7);
    let id = udp(&mut net, 0, 1000);
    let whole = Sending { unfragmented: true, ..Sending::default() };
    let send = |net: &mut Net, len: usize, to, how: &Sending| {
        net.stacks[0].send_datagram(id, &vec![0; len], Some(to), how, net.now)
    };
    assert_eq!(send(&mut net, 1472, at(1, 53), &whole), Ok(1472));
    assert_eq!(send(&mut net, 1473, at(1, 53), &whole), Err(Errno::EMSGSIZE));
    assert_eq!(send(&mut net, 1473, at(1, 53), &Sending::default()), Ok(1473));
    // Loopback takes all.
    assert_eq!(send(&mut net, 65_507, lo(53), &whole), Ok(65_507));
    assert_eq!(net.stacks[0].recv_report(id, net.now), Err(Errno::EAGAIN));
    net.stacks[0].set_option(id, SockOpt::RecvErr(true), net.now).unwrap();
    assert_eq!(send(&mut net, 1473, at(1, 53), &whole), Err(Errno::EMSGSIZE));
    let report = net.stacks[0].recv_report(id, net.now).expect("a report");
    assert_eq!(report.cause, Cause::TooLong { dst: at(1, 0), mtu: 1500 });
}

#[test]
fn times_of_sending_are_told_with_the_frame() {
    let mut net = Net::new(2, LinkConfig::default(), 7);
    let (id, other) = (udp(&mut net, 0, 1000), udp(&mut net, 1, 53));
    let times = Times { scheduled: true, sent: true, numbered: true, ..Times::default() };
    let how = Sending { times, ..Sending::default() };
    for number in 0..2 {
        net.stacks[0].send_datagram(id, b"when", Some(at(1, 53)), &how, net.now).unwrap();
        for sent in [false, true] {
            let report = net.stacks[0].recv_report(id, net.now).expect("a time");
            assert_eq!(report.cause, Cause::Time { sent, number, src: ip(0) });
            assert_eq!(report.at, net.now);
            assert_eq!(report.data.len(), 14 + 20 + 8 + 4);
            assert_eq!(&report.data[42..], b"when");
        }
    }
    assert_eq!(net.stacks[0].recv_report(id, net.now), Err(Errno::EAGAIN));
    net.run(SEC);
    let heard = net.stacks[1].recv_from(other, false).map(|datagram| datagram.data.to_vec());
    assert_eq!(heard, Ok(b"when".to_vec()));
}
