//! A small HTTP server on tokio: `tokio-server [address [requests]]`. It prints where it listens, answers every request
//! with its number on the connection, method, path and body, and ends after that many requests (never, by default).

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

#[tokio::main]
async fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let limit = args.next().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX);
    let listener = match TcpListener::bind(&address).await {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("{address}: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("listening on {address}");
    let state = Arc::new((AtomicUsize::new(0), Notify::new()));
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let state = state.clone();
                tokio::spawn(async move {
                    // A client that goes away in the middle is no concern of the others.
                    let _ = serve(stream, limit, &state).await;
                });
            }
            () = state.1.notified() => {
                println!("served {limit} requests");
                return ExitCode::SUCCESS;
            }
        }
    }
}

async fn serve(stream: TcpStream, limit: usize, state: &(AtomicUsize, Notify)) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    for number in 1.. {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            break;
        }
        let mut words = line.split_whitespace();
        let (method, path) = (words.next().unwrap_or("?").to_owned(), words.next().unwrap_or("?").to_owned());
        let (mut length, mut close) = (0, false);
        loop {
            let mut header = String::new();
            if stream.read_line(&mut header).await? == 0 || header.trim_end().is_empty() {
                break;
            }
            let header = header.to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            close |= header.starts_with("connection:") && header.contains("close");
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let answer = format!("request {number}: {method} {path} {}\n", String::from_utf8_lossy(&body));
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        );
        stream.write_all(format!("{head}{answer}").as_bytes()).await?;
        stream.flush().await?;
        if state.0.fetch_add(1, Ordering::SeqCst) + 1 == limit {
            state.1.notify_one();
        }
        if close {
            break;
        }
    }
    Ok(())
}
