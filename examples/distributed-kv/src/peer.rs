//! The threads that own connections between nodes.
//!
//! Every node connects to every other one. On its own connection it sends requests and receives the replies; on the
//! other node's connection it is the other way round. So each of the two threads of a pair only ever reads, and
//! [`Node`] writes.

use crate::NodeId;
use crate::message::Message;
use crate::node::Node;
use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);
/// No write should ever wait: the kernel's buffers hold far more than is under way. If one does, the peer is stuck.
const WRITE_TIMEOUT: Duration = Duration::from_millis(20);
/// After this many failed attempts the name is looked up again.
const LOOK_UP_EVERY: u32 = 20;

/// Accepts connections from other nodes, for ever.
pub fn accept(node: &Arc<Node>, listener: &TcpListener) {
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => {
                let node = node.clone();
                thread::spawn(move || serve(&node, stream));
            }
            Err(error) => {
                eprintln!("peer connection: {error}");
                thread::sleep(RECONNECT_PAUSE);
            }
        }
    }
}

/// Handles another node's connection until it ends.
fn serve(node: &Node, stream: TcpStream) {
    if prepare(&stream).is_err() {
        return;
    }
    let stream = Arc::new(stream);
    let mut reader = BufReader::new(&*stream);
    let Ok(Message::Hello(peer)) = Message::read_from(&mut reader) else { return };
    if peer == node.config.id || usize::from(peer) >= node.config.peers.len() {
        return;
    }
    node.inbound_up(peer, stream.clone());
    while let Ok(message) = Message::read_from(&mut reader) {
        if !message.is_reply() {
            node.on_message(peer, message);
        }
    }
    node.inbound_down(peer, &stream);
}

/// Keeps a connection to another node, for ever.
pub fn keep_connected(node: &Node, peer: NodeId) {
    let name = &node.config.peers[usize::from(peer)].1;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    let mut failures = 0;
    loop {
        if addresses.is_empty() || failures >= LOOK_UP_EVERY {
            addresses = name.to_socket_addrs().map(Iterator::collect).unwrap_or_default();
            failures = 0;
        }
        match connect(node, &addresses) {
            Ok(stream) => {
                failures = 0;
                let stream = Arc::new(stream);
                node.link_up(peer, stream.clone());
                let mut reader = BufReader::new(&*stream);
                while let Ok(message) = Message::read_from(&mut reader) {
                    if message.is_reply() {
                        node.on_message(peer, message);
                    }
                }
                node.link_down(peer);
            }
            Err(_) => failures += 1,
        }
        thread::sleep(RECONNECT_PAUSE);
    }
}

fn connect(node: &Node, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut result = Err(io::ErrorKind::NotFound.into());
    for address in addresses {
        result = TcpStream::connect_timeout(address, CONNECT_TIMEOUT);
        if result.is_ok() {
            break;
        }
    }
    let mut stream = result?;
    prepare(&stream)?;
    stream.write_all(&Message::Hello(node.config.id).to_frame())?;
    Ok(stream)
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))
}
