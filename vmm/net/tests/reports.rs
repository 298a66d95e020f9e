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
    // A group is reached by an interface as well.
    let group = "239.1.1.1:53".parse().unwrap();
    assert_eq!(send(&mut net, 1473, group, &whole), Err(Errno::EMSGSIZE));
    assert_eq!(send(&mut net, 1472, group, &whole), Ok(1472));
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
            let of = Some(Sent { src: ip(0), dst: ip(1), interface: 2, header: Header::default() });
            assert_eq!(report.cause, Cause::Time { sent, number, of });
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

#[test]
fn the_header_of_an_echo_is_part_of_its_data_and_that_of_ip_may_be() {
    let mut net = Net::new(2, LinkConfig::default(), 7);
    let echo = net.stacks[0].ping_socket(false);
    let whole = Sending { unfragmented: true, ..Sending::default() };
    for (len, sent) in [(1480, Ok(1480)), (1481, Err(Errno::EMSGSIZE))] {
        let mut request = vec![0; len];
        request[0] = 8;
        assert_eq!(net.stacks[0].send_datagram(echo, &request, Some(at(1, 0)), &whole, net.now), sent);
    }
    // A packet with its own header is never cut.
    let raw = net.stacks[0].raw_socket(false, 255);
    let own = Sending { has_header: true, ..Sending::default() };
    for (len, sent) in [(1500, Ok(1500)), (1501, Err(Errno::EMSGSIZE))] {
        let mut packet = vec![0; len];
        (packet[0], packet[9]) = (0x45, 253);
        packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
        assert_eq!(net.stacks[0].send_datagram(raw, &packet, Some(at(1, 0)), &own, net.now), sent);
    }
}

#[test]
fn who_has_lost_a_signed_connection_and_listens_again_resets_it() {
    let reset = |listens: bool, key: &[u8]| {
        let mut net = Net::new(2, LinkConfig::default(), 7);
        let server = net.stacks[1].tcp_socket(false);
        net.stacks[1].set_key(server, (ip(0), 32), Some(b"secret")).unwrap();
        net.stacks[1].bind(server, any(179)).unwrap();
        net.stacks[1].listen(server, 8).unwrap();
        let client = net.stacks[0].tcp_socket(false);
        net.stacks[0].set_key(client, (ip(1), 32), Some(b"secret")).unwrap();
        let _begun = net.stacks[0].connect(client, at(1, 179), net.now);
        net.run(SEC);
        let (accepted, _) = net.stacks[1].accept(server).expect("a connection");
        // The client's node forgets all, as after a loss of power.
        net.stacks[0] = fresh(0, Config::default(), 8);
        if listens {
            let again = net.stacks[0].tcp_socket(false);
            net.stacks[0].set_key(again, (ip(1), 32), Some(key)).unwrap();
            net.stacks[0].bind(again, any(179)).unwrap();
            net.stacks[0].listen(again, 8).unwrap();
        }
        net.stacks[1].send(accepted, b"still there?", false, net.now).unwrap();
        net.run(SEC);
        net.stacks[1].take_error(accepted).unwrap()
    };
    assert_eq!(reset(true, b"secret"), Some(Errno::ECONNRESET));
    assert_eq!(reset(true, b"another"), None);
    assert_eq!(reset(false, b""), None);
}
