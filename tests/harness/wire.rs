//! HTTP/1.1 by hand, for what no client library would send.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One connection.
pub struct Wire {
    pub stream: TcpStream,
    read: Vec<u8>,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub status: u16,
    /// The header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Said {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Everything but the date, for comparing answers that must not differ.
    pub fn without_date(mut self) -> Self {
        self.headers.retain(|(name, _)| name != "date");
        self
    }
}

impl Wire {
    pub async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap())
    }

    pub fn over(stream: TcpStream) -> Self {
        Self { stream, read: Vec::new() }
    }

    /// Sends bytes; false when the peer has closed already.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// The next final answer, or none when the connection ends before one is whole.
    pub async fn answer(&mut self) -> Option<Said> {
        loop {
            while let Some((said, used)) = parse(&self.read) {
                self.read.drain(..used);
                if said.status != 100 {
                    return Some(said);
                }
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// The head of the next answer, where no body follows.
    pub async fn head(&mut self) -> Said {
        loop {
            if let Some((said, end)) = parse_head(&self.read) {
                self.read.drain(..end);
                return said;
            }
            assert!(self.more().await, "the connection ended before an answer");
        }
    }

    /// Waits for the peer to close, throwing away what it still says.
    pub async fn closed(&mut self) {
        while self.more().await {
            self.read.clear();
        }
    }

    async fn more(&mut self) -> bool {
        matches!(self.stream.read_buf(&mut self.read).await, Ok(n) if n > 0)
    }
}

/// A whole answer at the beginning of the bytes, and how many of them it takes.
fn parse(bytes: &[u8]) -> Option<(Said, usize)> {
    let (mut said, head_end) = parse_head(bytes)?;
    let rest = &bytes[head_end..];
    let (body, used) = if said.header("transfer-encoding").is_some() {
        chunks(rest)?
    } else {
        let length: usize = said.header("content-length").map_or(0, |length| length.parse().unwrap());
        (rest.get(..length)?.to_vec(), length)
    };
    said.body = String::from_utf8(body).unwrap();
    Some((said, head_end + used))
}

fn parse_head(bytes: &[u8]) -> Option<(Said, usize)> {
    let head_end = find(bytes, b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..head_end]).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(':').unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Some((Said { status, headers, body: String::new() }, head_end))
}

fn chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line_end = at + find(&bytes[at..], b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[at..line_end]).unwrap(), 16).unwrap();
        let (start, end) = (line_end + 2, line_end + 2 + size);
        body.extend_from_slice(bytes.get(start..end)?);
        at = end + 2;
        bytes.get(..at)?;
        if size == 0 {
            return Some((body, at));
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
