//! Programs that an engine runs in a container that runs already.
//!
//! Key types: [`Command`], [`Executed`]. The output comes as frames, each with its stream and its length ("Attach to a container", Stream
//! format).

use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use super::control::{Ask, Control, EngineError, bounded};

/// Bytes of output that are kept.
const OUTPUT: u64 = 64 << 10;
/// How long the engine may take to say how a program ended, in looks.
const LOOKS: u32 = 40;
/// Between two of them: the API has no call that waits for the end of a program in a container.
const LOOK: Duration = Duration::from_millis(50);

/// A program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// With its arguments.
    pub argv: Vec<String>,
    /// Variables over those of the container.
    pub env: Vec<String>,
    /// Where it starts; `None`: where the container's own command does.
    pub cwd: Option<String>,
    /// Whose rights it has; `None`: the container's.
    pub user: Option<String>,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Its exit code.
    pub code: i64,
    /// What it printed on both streams.
    pub output: Vec<u8>,
}

impl Control {
    /// Runs a program in a container to its end. One that takes longer than `patience` is left alone, for the API has no way to end it.
    ///
    /// # Errors
    /// The container does not run, the program cannot be started, or it takes too long.
    pub fn exec(
        &self,
        container: &str,
        command: &Command,
        patience: Duration,
    ) -> Result<Executed, EngineError> {
        let program = command.argv.first().map_or("", String::as_str);
        let what = format!("running {program} in {container}");
        let mut document = json!({
            "AttachStdout": true, "AttachStderr": true, "Cmd": command.argv, "Env": command.env,
        });
        if let Some(cwd) = &command.cwd {
            document["WorkingDir"] = json!(cwd);
        }
        if let Some(user) = &command.user {
            document["User"] = json!(user);
        }
        let path = format!("/containers/{container}/exec");
        let patient = |ask| Ask { patience: Some(patience), ..ask };
        let made = self.document(patient(Ask::new("POST", &path, &what).json(&document)))?;
        let id = made.get("Id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let path = format!("/exec/{id}/start");
        let begin = json!({ "Detach": false, "Tty": false });
        let response = self.ask(patient(Ask::new("POST", &path, &what).json(&begin)))?;
        let frames = bounded(response.into_body(), OUTPUT).map_err(|e| {
            let text = match e.kind() {
                io::ErrorKind::TimedOut => format!("it took longer than {} ms", patience.as_millis()),
                _ => e.to_string(),
            };
            EngineError::new(format!("{what}: {text}"))
        })?;
        // The output may end a little before the engine knows the exit code.
        let path = format!("/exec/{id}/json");
        for _ in 0..LOOKS {
            let found = self.get(&path, &what)?;
            if found["Running"] == Value::Bool(false)
                && let Some(code) = found["ExitCode"].as_i64()
            {
                return Ok(Executed { code, output: plain(&frames) });
            }
            std::thread::sleep(LOOK);
        }
        Err(EngineError::new(format!("{what}: the engine does not say how it ended")))
    }
}

/// The content of frames. Of a container with a terminal there are none: then it is what came.
pub(super) fn plain(frames: &[u8]) -> Vec<u8> {
    let (mut rest, mut out) = (frames, Vec::new());
    while let [stream @ 0..=2, 0, 0, 0, a, b, c, d, after @ ..] = rest {
        let _either = stream;
        let length = (u32::from_be_bytes([*a, *b, *c, *d]) as usize).min(after.len());
        out.extend_from_slice(&after[..length]);
        rest = &after[length..];
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn frames_are_put_together() {
        assert_eq!(plain(b"\x01\0\0\0\0\0\0\x02ab\x02\0\0\0\0\0\0\x01c"), b"abc");
        assert_eq!(plain(b"with a terminal\r\n"), b"with a terminal\r\n");
        // Cut off in the middle.
        assert_eq!(plain(b"\x01\0\0\0\0\0\0\x09ab"), b"ab");
        assert_eq!(plain(b""), b"");
    }
}
