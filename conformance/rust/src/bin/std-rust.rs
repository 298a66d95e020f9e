//! What the Rust standard library asks of the kernel: threads, channels, time, sockets, files, processes, panics.

use conformance::{check, check_eq, done};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, RwLock, mpsc};
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs, panic, thread};

fn main() {
    match env::args().nth(1).as_deref() {
        Some("echo") => return echo(),
        Some("abort") => std::process::abort(),
        _ => {}
    }
    threads();
    locks();
    channels();
    time();
    tcp();
    datagrams();
    files();
    processes();
    panics();
    done()
}

/// The child's part: copies its input in capitals, and says what it has in its environment.
fn echo() {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).expect("input");
    print!("{}{}", text.to_uppercase(), env::var("CONFORMANCE").unwrap_or_default());
    eprint!("to the error stream");
    std::process::exit(7)
}

fn threads() {
    let sum: u64 = thread::scope(|scope| {
        let parts: Vec<_> =
            (0..8u64).map(|i| scope.spawn(move || (i * 100..i * 100 + 100).sum::<u64>())).collect();
        parts.into_iter().map(|part| part.join().expect("part")).sum()
    });
    check_eq("scoped threads add up", sum, (0..800).sum());
    let named = thread::Builder::new().name("a name".into()).stack_size(1 << 20);
    let handle = named.spawn(|| thread::current().name().map(str::to_owned)).expect("spawn");
    check_eq("a thread knows its name", handle.join().expect("join"), Some("a name".into()));
    let parked = thread::spawn(|| {
        thread::park();
        5
    });
    parked.thread().unpark();
    check_eq("a parked thread is unparked", parked.join().expect("join"), 5);
    check("there is at least one processor", thread::available_parallelism().is_ok());
}

fn locks() {
    let total = Arc::new(Mutex::new(0));
    let handles: Vec<_> = (0..4)
        .map(|_| {
            let total = total.clone();
            thread::spawn(move || (0..500).for_each(|_| *total.lock().expect("lock") += 1))
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join().expect("join"));
    check_eq("a mutex keeps every addition", *total.lock().expect("lock"), 2000);

    let turn = Arc::new((Mutex::new(0), Condvar::new()));
    let handles: Vec<_> = (0..3)
        .map(|me| {
            let turn = turn.clone();
            thread::spawn(move || {
                for _ in 0..20 {
                    let (lock, changed) = &*turn;
                    let mut now =
                        changed.wait_while(lock.lock().expect("lock"), |now| *now % 3 != me).expect("wait");
                    *now += 1;
                    changed.notify_all();
                }
            })
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join().expect("join"));
    check_eq("threads take turns by a condition", *turn.0.lock().expect("lock"), 60);
    let guard = turn.0.lock().expect("lock");
    let (_guard, result) = turn.1.wait_timeout(guard, Duration::from_millis(5)).expect("wait");
    check("a wait for a condition times out", result.timed_out());

    let (barrier, leaders) = (Arc::new(Barrier::new(4)), Arc::new(AtomicUsize::new(0)));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    leaders.fetch_add(usize::from(barrier.wait().is_leader()), Ordering::SeqCst);
                }
            });
        }
    });
    check_eq("a barrier has one leader each time", leaders.load(Ordering::SeqCst), 10);
    let pair = RwLock::new((0, 0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                let mut pair = pair.write().expect("lock");
                pair.0 += 1;
                thread::yield_now();
                pair.1 += 1;
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let pair = pair.read().expect("lock");
                    assert_eq!(pair.0, pair.1);
                }
            });
        }
    });
    check_eq("readers see no half of a write", *pair.read().expect("lock"), (200, 200));
    static ONCE: OnceLock<u32> = OnceLock::new();
    check_eq("a once cell is set once", (*ONCE.get_or_init(|| 1), *ONCE.get_or_init(|| 2)), (1, 1));
}

fn channels() {
    let (send, receive) = mpsc::channel();
    for i in 0..4 {
        let send = send.clone();
        thread::spawn(move || (0..100).for_each(|n| send.send(i * 100 + n).expect("send")));
    }
    drop(send);
    let mut all: Vec<i32> = receive.iter().collect();
    all.sort_unstable();
    check("a channel loses nothing", all.into_iter().eq(0..400));
    let (send, receive) = mpsc::sync_channel(1);
    let producer = thread::spawn(move || (0..100).for_each(|n| send.send(n).expect("send")));
    check("a bounded channel keeps the order", receive.iter().eq(0..100));
    producer.join().expect("join");
    let (send, receive) = mpsc::channel::<()>();
    check_eq(
        "a receive times out",
        receive.recv_timeout(Duration::from_millis(5)),
        Err(mpsc::RecvTimeoutError::Timeout),
    );
    drop(send);
    check_eq("a receive ends with the last sender", receive.recv(), Err(mpsc::RecvError));
}

fn time() {
    let start = Instant::now();
    thread::sleep(Duration::from_millis(10));
    check("a sleep is not too short", start.elapsed() >= Duration::from_millis(10));
    check(
        "the date is after 2017",
        SystemTime::now() > SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000),
    );
    let random = HashMap::from([(1, 2)]);
    check_eq("a hash map finds what it holds", random.get(&1), Some(&2));
}

fn tcp() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let address = listener.local_addr().expect("address");
    let server = thread::spawn(move || {
        let mut served = Vec::new();
        for _ in 0..5 {
            let (stream, _) = listener.accept().expect("accept");
            served.push(thread::spawn(move || {
                let mut writer = stream.try_clone().expect("clone");
                BufReader::new(stream).lines().fold(0, |count, line| {
                    writeln!(writer, "<{}>", line.expect("line")).expect("write");
                    count + 1
                })
            }));
        }
        served.into_iter().map(|thread| thread.join().expect("join")).sum::<u32>()
    });
    let clients: Vec<_> = (0..5)
        .map(|i| {
            thread::spawn(move || {
                let mut stream = TcpStream::connect(address).expect("connect");
                stream.set_nodelay(true).expect("nodelay");
                let mut answers = BufReader::new(stream.try_clone().expect("clone"));
                let good = (0..10).all(|n| {
                    writeln!(stream, "{i}-{n}").expect("write");
                    let mut line = String::new();
                    answers.read_line(&mut line).expect("read");
                    line == format!("<{i}-{n}>\n")
                });
                stream.shutdown(Shutdown::Write).expect("shutdown");
                good && answers.read(&mut [0]).expect("end") == 0
            })
        })
        .collect();
    check(
        "every client gets its own answers",
        clients.into_iter().all(|client| client.join().expect("join")),
    );
    check_eq("the server has seen every line", server.join().expect("join"), 50);
    let refused =
        TcpStream::connect_timeout(&address, Duration::from_secs(5)).map(|_| ()).map_err(|e| e.kind());
    check_eq("nobody listens any more", refused, Err(io::ErrorKind::ConnectionRefused));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    listener.set_nonblocking(true).expect("nonblocking");
    check_eq(
        "nobody waits",
        listener.accept().map(|_| ()).map_err(|e| e.kind()),
        Err(io::ErrorKind::WouldBlock),
    );
    let mut stream = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    stream.set_read_timeout(Some(Duration::from_millis(5))).expect("timeout");
    check_eq("a read times out", stream.read(&mut [0]).map_err(|e| e.kind()), Err(io::ErrorKind::WouldBlock));
    check(
        "localhost has an address",
        std::net::ToSocketAddrs::to_socket_addrs("localhost:80").is_ok_and(|mut a| a.next().is_some()),
    );
}

fn datagrams() {
    let (a, b) =
        (UdpSocket::bind("127.0.0.1:0").expect("bind"), UdpSocket::bind("127.0.0.1:0").expect("bind"));
    let mut buffer = [0; 16];
    a.send_to(b"datagram", b.local_addr().expect("address")).expect("send");
    let (length, from) = b.recv_from(&mut buffer).expect("receive");
    check_eq("a datagram arrives whole", &buffer[..length], b"datagram");
    check_eq("and says from where", from, a.local_addr().expect("address"));
    let (mut left, mut right) = UnixStream::pair().expect("pair");
    left.write_all(b"unix").expect("write");
    drop(left);
    let mut text = String::new();
    right.read_to_string(&mut text).expect("read");
    check_eq("a pair of sockets carries bytes", text.as_str(), "unix");
}

fn files() {
    let directory = env::temp_dir().join(format!("conformance-{}", std::process::id()));
    fs::create_dir_all(directory.join("a/b")).expect("create");
    let path = directory.join("a/file");
    fs::write(&path, "some text\n").expect("write");
    let mut file = fs::OpenOptions::new().append(true).read(true).open(&path).expect("open");
    file.write_all(b"and more\n").expect("append");
    file.sync_all().expect("sync");
    file.seek(SeekFrom::Start(5)).expect("seek");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("read");
    check_eq("a file has what was written", text.as_str(), "text\nand more\n");
    file.set_len(4).expect("truncate");
    check_eq("and is as long as it was made", fs::metadata(&path).expect("metadata").len(), 4);
    fs::rename(&path, directory.join("renamed")).expect("rename");
    check_eq("it has moved", fs::read_to_string(directory.join("renamed")).expect("read"), "some".into());
    check_eq("from here", fs::read(&path).map_err(|e| e.kind()), Err(io::ErrorKind::NotFound));
    fs::copy(directory.join("renamed"), directory.join("a/copy")).expect("copy");
    let mut names: Vec<_> =
        fs::read_dir(directory.join("a")).expect("list").map(|e| e.expect("entry").file_name()).collect();
    names.sort();
    check_eq("the directory lists what is in it", names, vec!["b".into(), "copy".into()]);
    check_eq(
        "a path is made canonical",
        directory.join("a/../a/b").canonicalize().ok(),
        directory.join("a/b").canonicalize().ok(),
    );
    fs::remove_dir_all(&directory).expect("remove");
    check("all is gone", !directory.exists());
}

fn processes() {
    let me = env::current_exe().expect("own path");
    let mut child = Command::new(&me)
        .arg("echo")
        .env("CONFORMANCE", "set")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("spawn");
    child.stdin.take().expect("pipe").write_all(b"in capitals ").expect("write");
    let output = child.wait_with_output().expect("wait");
    check_eq("a child gets and gives text", output.stdout.as_slice(), b"IN CAPITALS set".as_slice());
    check_eq("and errors", output.stderr.as_slice(), b"to the error stream".as_slice());
    check_eq("and an exit code", output.status.code(), Some(7));
    let aborted = Command::new(&me).arg("abort").stderr(Stdio::null()).status().expect("run");
    check_eq("an abort is a signal", aborted.signal(), Some(6));
    let missing = Command::new("/nonexistent").spawn().map(|_| ()).map_err(|e| e.kind());
    check_eq("a missing program is an error here", missing, Err(io::ErrorKind::NotFound));
    let mut child =
        Command::new(&me).arg("echo").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("spawn");
    check_eq("a child that waits has not ended", child.try_wait().expect("try").is_none(), true);
    child.kill().expect("kill");
    check_eq("and can be killed", child.wait().expect("wait").signal(), Some(9));
}

fn panics() {
    panic::set_hook(Box::new(|_| {}));
    check("a panic is caught", panic::catch_unwind(|| panic!("on purpose")).is_err());
    check("a thread's panic is its join's error", thread::spawn(|| panic!("on purpose")).join().is_err());
    let array = [1, 2, 3];
    let index = env::args().count() + 5;
    check("an index out of bounds is one", panic::catch_unwind(|| array[index]).is_err());
    let _ = panic::take_hook();
}
