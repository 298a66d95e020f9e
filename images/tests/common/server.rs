//! A registry made for tests: it serves an image as a registry does, says what it was asked, and answers otherwise where a test wants it.
#![allow(dead_code)] // every test file uses its part

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bloodhound_images::Digest;

use super::Blobs;

/// What was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    /// How many requests came before.
    pub number: usize,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// What is answered.
pub enum Reply {
    /// Status, headers and body.
    Plain(u16, Vec<(String, String)>, Vec<u8>),
    /// These bytes as they are, then the connection ends.
    Raw(Vec<u8>),
    /// These bytes, then nothing until the client gives up.
    Stall(Vec<u8>),
    /// These bytes one by one with a pause after each.
    Drip(Vec<u8>, Duration),
    /// This head, then zeros for as long as somebody reads.
    Endless(Vec<u8>),
    /// A body of which only so many bytes come.
    Broken(Vec<u8>, usize),
}

impl Reply {
    pub fn status(status: u16) -> Reply {
        Reply::Plain(status, Vec::new(), Vec::new())
    }

    pub fn with(status: u16, name: &str, value: &str) -> Reply {
        Reply::Plain(status, vec![(name.to_owned(), value.to_owned())], Vec::new())
    }

    pub fn body(bytes: &[u8]) -> Reply {
        Reply::Plain(200, Vec::new(), bytes.to_vec())
    }
}

type Handler = dyn Fn(&Asked) -> Reply + Send + Sync;

/// The server. Its thread ends with the process.
pub struct Server {
    pub port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub fn new(handler: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (handler, seen): (Arc<Handler>, _) = (Arc::new(handler), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (handler, seen) = (handler.clone(), seen.clone());
                // Clients of these tests end connections as they like.
                std::thread::spawn(move || drop(serve(stream, &*handler, &seen)));
            }
        });
        Server { port, asked }
    }

    /// A registry with one image, `app:1`, where `special` does not answer.
    pub fn registry(
        blobs: Blobs,
        special: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static,
    ) -> Server {
        Server::new(move |asked| special(asked).unwrap_or_else(|| usual(&blobs, asked)))
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("not poisoned").clone()
    }

    /// How many requests had a path with this in it.
    pub fn count(&self, part: &str) -> usize {
        self.asked().iter().filter(|asked| asked.path.contains(part)).count()
    }
}

/// What a registry answers.
pub fn usual(blobs: &Blobs, asked: &Asked) -> Reply {
    let name = asked.path.rsplit('/').next().unwrap_or_default();
    if asked.path.contains("/manifests/") && (name == "1" || name == Digest::of(&blobs.manifest).to_string())
    {
        let media = "application/vnd.oci.image.manifest.v1+json".to_owned();
        return Reply::Plain(200, vec![("Content-Type".to_owned(), media)], blobs.manifest.clone());
    }
    let blob = blobs.all().find(|blob| name == Digest::of(blob).to_string());
    let (Some(blob), true) = (blob, asked.path.contains("/blobs/")) else {
        let body =
            br#"{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known to registry"}]}"#;
        return Reply::Plain(404, Vec::new(), body.to_vec());
    };
    let from =
        asked.header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    match from {
        Some(from) if from < blob.len() => {
            let range = format!("bytes {from}-{}/{}", blob.len() - 1, blob.len());
            Reply::Plain(206, vec![("Content-Range".to_owned(), range)], blob[from..].to_vec())
        }
        _ => Reply::body(blob),
    }
}

fn serve(stream: TcpStream, handler: &Handler, seen: &Mutex<Vec<Asked>>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.set_write_timeout(Some(Duration::from_secs(30)))?;
    // The first byte of TLS, which this server does not speak.
    let mut first = [0];
    if stream.peek(&mut first)? == 0 || first[0] == 0x16 {
        return Ok(());
    }
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let mut words = lines.first().map(String::as_str).unwrap_or_default().split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let headers = lines.iter().skip(1).filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(key, value)| (key.to_ascii_lowercase(), value.trim().to_owned())).collect();
    let asked = {
        let mut seen = seen.lock().expect("not poisoned");
        let asked = Asked { method, path, headers, number: seen.len() };
        seen.push(asked.clone());
        asked
    };
    let mut out = stream;
    match handler(&asked) {
        Reply::Plain(status, headers, body) => {
            let mut head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len());
            headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
            out.write_all(format!("{head}\r\n").as_bytes())?;
            out.write_all(&body)?;
        }
        Reply::Raw(bytes) => out.write_all(&bytes)?,
        Reply::Stall(bytes) => {
            out.write_all(&bytes)?;
            let mut rest = String::new();
            // Ends when the client closes, or by the time limit above.
            reader.read_line(&mut rest)?;
        }
        Reply::Drip(bytes, pause) => {
            for byte in bytes {
                out.write_all(&[byte])?;
                out.flush()?;
                std::thread::sleep(pause);
            }
        }
        Reply::Endless(head) => {
            out.write_all(&head)?;
            loop {
                out.write_all(&[0; 4096])?;
            }
        }
        Reply::Broken(body, some) => {
            out.write_all(format!("HTTP/1.1 200 X\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes())?;
            out.write_all(&body[..some])?;
        }
    }
    Ok(())
}
