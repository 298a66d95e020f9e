//! Runs one node, set up by the environment (see [`distributed_kv::config`]); with `--healthcheck`, asks the node on
//! this machine how it is and exits with 0 if it is well.

use distributed_kv::NodeId;
use distributed_kv::config::{Config, DEFAULT_LISTEN};
use distributed_kv::node::Node;
use distributed_kv::{http, peer};
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("--healthcheck") {
        return healthcheck();
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("distributed-kv: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let config = Config::from_env(|name| std::env::var(name).ok())?;
    let peer_listener = TcpListener::bind(&config.peer_listen)
        .map_err(|error| format!("cannot listen on {}: {error}", config.peer_listen))?;
    let listener = TcpListener::bind(&config.listen)
        .map_err(|error| format!("cannot listen on {}: {error}", config.listen))?;
    let node = Node::open(config).map_err(|error| format!("cannot read the data directory: {error}"))?;
    let node = Arc::new(node);

    for id in (0..node.config.peers.len() as NodeId).filter(|id| *id != node.config.id) {
        let node = node.clone();
        thread::spawn(move || peer::keep_connected(&node, id));
    }
    let timed = node.clone();
    thread::spawn(move || timed.run_timer());
    let reached = node.clone();
    thread::spawn(move || peer::accept(&reached, &peer_listener));
    http::accept(&node, &listener);
    Ok(())
}

fn healthcheck() -> ExitCode {
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| DEFAULT_LISTEN.to_owned());
    match http::is_healthy(&listen.replace("0.0.0.0:", "127.0.0.1:")) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{listen}: {error}");
            ExitCode::FAILURE
        }
    }
}
