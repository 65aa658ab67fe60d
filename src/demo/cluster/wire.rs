//! As much of the Postgres protocol as it takes to ask "are you there" and to create a database over a unix socket.
//!
//! Not a client: no passwords, no rows, no TLS. Everything else goes through `storage`.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ClusterError;

/// Protocol 3.0, as the first number of the start-up message.
const PROTOCOL: i32 = 3 << 16;

/// A message of the private server longer than this is no answer to anything asked here.
const LONGEST_MESSAGE: usize = 64 * 1024;

/// How long the server may take to take a connection: beyond it counts as not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long one statement may take.
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);

/// A connection that is ready for a statement.
pub(super) struct Connection {
    stream: UnixStream,
    path: PathBuf,
}

/// Connects as a role that needs no password.
pub(super) fn connect(socket: &Path, role: &str, database: &str) -> Result<Connection, ClusterError> {
    let stream = UnixStream::connect(socket).map_err(ClusterError::io("connect to", socket))?;
    let mut connection = Connection { stream, path: socket.to_owned() };
    connection.timeout(CONNECT_TIMEOUT)?;
    let mut body = PROTOCOL.to_be_bytes().to_vec();
    for text in ["user", role, "database", database, ""] {
        body.extend_from_slice(text.as_bytes());
        body.push(0);
    }
    connection.send(None, &body)?;
    connection.until_ready()?;
    connection.timeout(STATEMENT_TIMEOUT)?;
    Ok(connection)
}

impl Connection {
    /// Runs one statement whose rows nobody needs.
    pub(super) fn execute(&mut self, sql: &str) -> Result<(), ClusterError> {
        let mut body = sql.as_bytes().to_vec();
        body.push(0);
        self.send(Some(b'Q'), &body)?;
        self.until_ready()
    }

    fn timeout(&self, limit: Duration) -> Result<(), ClusterError> {
        let both = self.stream.set_read_timeout(Some(limit)).and(self.stream.set_write_timeout(Some(limit)));
        both.map_err(ClusterError::io("set the time limit of", &self.path))
    }

    fn send(&mut self, kind: Option<u8>, body: &[u8]) -> Result<(), ClusterError> {
        let length = i32::try_from(body.len() + 4).map_err(|_| self.broken("a message that is too long"))?;
        let mut message: Vec<u8> = kind.into_iter().collect();
        message.extend_from_slice(&length.to_be_bytes());
        message.extend_from_slice(body);
        self.stream.write_all(&message).map_err(ClusterError::io("write to", &self.path))
    }

    /// Reads messages up to "ready for query"; the first error among them is the answer.
    fn until_ready(&mut self) -> Result<(), ClusterError> {
        let mut refused = None;
        loop {
            let (kind, body) = match self.receive() {
                Ok(message) => message,
                // A refused start-up is an error message followed by the end of the stream.
                Err(error) => return Err(refused.unwrap_or(error)),
            };
            match kind {
                b'Z' => return refused.map_or(Ok(()), Err),
                b'E' => refused = Some(refusal(&body)),
                b'R' if body != 0_i32.to_be_bytes() => return Err(self.broken("a request for a password")),
                // Parameters, notices, the key for cancelling, the end of a statement.
                _ => {}
            }
        }
    }

    fn receive(&mut self) -> Result<(u8, Vec<u8>), ClusterError> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).map_err(ClusterError::io("read from", &self.path))?;
        let [kind, length @ ..] = head;
        let length = usize::try_from(i32::from_be_bytes(length)).ok().and_then(|n| n.checked_sub(4));
        let Some(length) = length.filter(|n| *n <= LONGEST_MESSAGE) else {
            return Err(self.broken("a message of impossible length"));
        };
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).map_err(ClusterError::io("read from", &self.path))?;
        Ok((kind, body))
    }

    fn broken(&self, what: &str) -> ClusterError {
        ClusterError::io("talk to", &self.path)(io::Error::new(io::ErrorKind::InvalidData, what))
    }
}

/// An error message is a list of fields, each a letter and a text: `C` is the SQLSTATE, `M` the message.
fn refusal(body: &[u8]) -> ClusterError {
    let (mut code, mut message) = (String::new(), String::new());
    for field in body.split(|b| *b == 0) {
        match field.split_first() {
            Some((b'C', text)) => code = String::from_utf8_lossy(text).into_owned(),
            Some((b'M', text)) => message = String::from_utf8_lossy(text).into_owned(),
            _ => {}
        }
    }
    ClusterError::Sql { code, message }
}
