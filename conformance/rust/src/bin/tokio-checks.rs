//! What tokio asks of the kernel: its multi-threaded and its current-thread runtime, timers, sockets, processes, signals.

use conformance::{check, check_eq, done};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use tokio::process::Command;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, Notify, Semaphore, broadcast, mpsc, oneshot};
use tokio::time::{interval, sleep, timeout};

fn main() {
    let multi = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
    multi.block_on(all());
    drop(multi);
    Builder::new_current_thread().enable_all().build().expect("runtime").block_on(all());
    done()
}

async fn all() {
    tasks().await;
    timers().await;
    sockets().await;
    processes().await;
}

async fn tasks() {
    let tasks: Vec<_> = (0..100u64).map(|i| tokio::spawn(async move { i * i })).collect();
    let mut sum = 0;
    for task in tasks {
        sum += task.await.expect("task");
    }
    check_eq("a hundred tasks add up", sum, (0..100).map(|i| i * i).sum());
    let (send, mut receive) = mpsc::channel(4);
    for i in 0..4 {
        let send = send.clone();
        tokio::spawn(async move {
            for n in 0..50 {
                send.send(i * 50 + n).await.expect("send");
            }
        });
    }
    drop(send);
    let mut got = Vec::new();
    while let Some(n) = receive.recv().await {
        got.push(n);
    }
    got.sort_unstable();
    check("a channel loses nothing", got.into_iter().eq(0..200));
    let blocking = tokio::task::spawn_blocking(|| {
        std::thread::sleep(Duration::from_millis(2));
        6
    });
    check_eq("blocking work comes back", blocking.await.expect("task"), 6);
    let shared = std::sync::Arc::new((Mutex::new(0), Semaphore::new(2), Notify::new()));
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let shared = shared.clone();
            tokio::spawn(async move {
                let _permit = shared.1.acquire().await.expect("permit");
                let mut total = shared.0.lock().await;
                tokio::task::yield_now().await;
                *total += 1;
                shared.2.notify_one();
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("task");
    }
    shared.2.notified().await;
    check_eq("a mutex held over an await", *shared.0.lock().await, 10);
    let (send, mut one) = broadcast::channel(8);
    let mut two = send.subscribe();
    send.send(3).expect("send");
    check_eq("a broadcast reaches all", (one.recv().await.ok(), two.recv().await.ok()), (Some(3), Some(3)));
    let (send, receive) = oneshot::channel::<()>();
    drop(send);
    check("a dropped sender is noticed", receive.await.is_err());
    let stuck = tokio::spawn(std::future::pending::<()>());
    stuck.abort();
    check("a task is aborted", stuck.await.is_err_and(|error| error.is_cancelled()));
}

async fn timers() {
    let start = Instant::now();
    sleep(Duration::from_millis(10)).await;
    check("a sleep is not too short", start.elapsed() >= Duration::from_millis(10));
    check("a time-out comes", timeout(Duration::from_millis(5), std::future::pending::<()>()).await.is_err());
    check_eq("or does not", timeout(Duration::from_secs(60), async { 1 }).await.ok(), Some(1));
    let start = Instant::now();
    let mut ticks = interval(Duration::from_millis(3));
    for _ in 0..4 {
        ticks.tick().await;
    }
    check("an interval ticks", start.elapsed() >= Duration::from_millis(9));
    let mut order = Vec::new();
    let (mut late, mut early) =
        (Box::pin(sleep(Duration::from_millis(40))), Box::pin(sleep(Duration::from_millis(4))));
    let (mut late_done, mut early_done) = (false, false);
    while order.len() < 2 {
        tokio::select! {
            () = &mut late, if !late_done => { late_done = true; order.push("late") }
            () = &mut early, if !early_done => { early_done = true; order.push("early") }
        }
    }
    check_eq("timers end in order", order, vec!["early", "late"]);
}

async fn sockets() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let server = tokio::spawn(async move {
        let mut connections = Vec::new();
        for _ in 0..20 {
            let (stream, _) = listener.accept().await.expect("accept");
            connections.push(tokio::spawn(async move {
                let (reader, mut writer) = stream.into_split();
                let mut lines = BufReader::new(reader).lines();
                let mut count = 0;
                while let Some(line) = lines.next_line().await.expect("line") {
                    writer.write_all(format!("<{line}>\n").as_bytes()).await.expect("write");
                    count += 1;
                }
                count
            }));
        }
        let mut total = 0;
        for connection in connections {
            total += connection.await.expect("connection");
        }
        total
    });
    let clients: Vec<_> = (0..20)
        .map(|i| {
            tokio::spawn(async move {
                let mut stream = BufReader::new(TcpStream::connect(address).await.expect("connect"));
                for n in 0..10 {
                    stream.write_all(format!("{i}-{n}\n").as_bytes()).await.expect("write");
                    let mut line = String::new();
                    stream.read_line(&mut line).await.expect("read");
                    assert_eq!(line, format!("<{i}-{n}>\n"));
                }
            })
        })
        .collect();
    let mut good = 0;
    for client in clients {
        good += i32::from(client.await.is_ok());
    }
    check_eq("every client gets its own answers", good, 20);
    check_eq("the server has seen every line", server.await.expect("server"), 200);
    let refused = TcpStream::connect(address).await.map(|_| ()).map_err(|e| e.kind());
    check_eq("nobody listens any more", refused, Err(std::io::ErrorKind::ConnectionRefused));

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let sender = tokio::spawn(async move {
        let mut stream = TcpStream::connect(address).await.expect("connect");
        let megabyte: Vec<u8> = (0..1 << 20).map(|i: u32| (i * 7 + i / 256) as u8).collect();
        for _ in 0..8 {
            stream.write_all(&megabyte).await.expect("write");
        }
    });
    let (mut stream, _) = listener.accept().await.expect("accept");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.expect("read");
    sender.await.expect("sender");
    let right = all.iter().enumerate().all(|(i, byte)| {
        let i = (i % (1 << 20)) as u32;
        *byte == (i * 7 + i / 256) as u8
    });
    check("eight megabytes arrive as they were sent", all.len() == 8 << 20 && right);

    let (a, b) = (
        UdpSocket::bind("127.0.0.1:0").await.expect("bind"),
        UdpSocket::bind("127.0.0.1:0").await.expect("bind"),
    );
    a.send_to(b"datagram", b.local_addr().expect("address")).await.expect("send");
    let mut buffer = [0; 16];
    check_eq("a datagram arrives", b.recv_from(&mut buffer).await.ok().map(|(n, _)| n), Some(8));
    let (mut left, mut right) = UnixStream::pair().expect("pair");
    left.write_all(b"unix").await.expect("write");
    drop(left);
    let mut text = String::new();
    right.read_to_string(&mut text).await.expect("read");
    check_eq("a pair of sockets carries bytes", text.as_str(), "unix");
}

async fn processes() {
    let output =
        Command::new("/bin/sh").args(["-c", "echo out; echo err >&2; exit 3"]).output().await.expect("run");
    check_eq("a child's output", output.stdout.as_slice(), b"out\n".as_slice());
    check_eq("and its errors", output.stderr.as_slice(), b"err\n".as_slice());
    check_eq("and its exit code", output.status.code(), Some(3));
    let mut child = Command::new("/bin/sleep").arg("1000").spawn().expect("spawn");
    child.kill().await.expect("kill");
    check("a child is killed", child.wait().await.is_ok_and(|status| !status.success()));
    let mut usr1 = signal(SignalKind::user_defined1()).expect("signal");
    let own = std::process::id().to_string();
    Command::new("/bin/sh").args(["-c", &format!("kill -USR1 {own}")]).status().await.expect("run");
    check("a signal arrives", usr1.recv().await.is_some());
}
