//! What an engine is asked to do with containers, networks, volumes and images.
//!
//! Key types: [`Life`] (what became of a container), [`Listed`], [`Rubbish`]. The documents that describe what is to be made come from the
//! caller, who knows the service; their form is that of the API.

use std::time::Duration;

use serde_json::{Value, json};

use super::control::{Ask, Control, EngineError, bounded};
use super::upload;
use crate::http::url::quoted;
use crate::image::Image;
use crate::store::Store;

/// How long an image may be on its way to an engine without its saying anything.
const LOADING: Duration = Duration::from_secs(1800);
/// Bytes of a container's output that are kept.
const OUTPUT: u64 = 8 << 20;

/// What a container does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// `created`, `running`, `paused`, `restarting`, `exited` or `dead`.
    pub status: String,
    /// How its command ended, if it did.
    pub exit_code: i64,
    /// The kernel killed it because it had too little memory.
    pub out_of_memory: bool,
    /// When its present or last life began, in the engine's words: another life has another one.
    pub started: String,
    /// Why it could not be started.
    pub error: String,
}

impl Life {
    /// Whether its command runs, or stands still.
    pub fn runs(&self) -> bool {
        matches!(self.status.as_str(), "running" | "paused" | "restarting")
    }
}

/// A container of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// Its first name, without a slash.
    pub name: String,
    /// As [`Life::status`].
    pub status: String,
}

/// What was not removed, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rubbish(pub Vec<String>);

impl Control {
    /// The id of an image that the engine has.
    pub fn image(&self, name: &str) -> Result<Option<String>, EngineError> {
        let what = format!("looking for the image {name}");
        match self.get(&format!("/images/{}/json", quoted(name)), &what) {
            Ok(image) => Ok(image.get("Id").and_then(Value::as_str).map(with_algorithm)),
            Err(error) if error.status == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives the engine an image of the cache under this name.
    pub fn load(&self, store: &Store, image: &Image, name: &str) -> Result<(), EngineError> {
        let what = format!("loading the image {}", image.reference);
        let mut archive =
            upload::Archive::new(store, image, name).map_err(|e| EngineError::new(format!("{what}: {e}")))?;
        let length = archive.length();
        let ask = Ask {
            upload: Some((&mut archive, length)),
            patience: Some(LOADING),
            ..Ask::new("POST", "/images/load?quiet=1", &what)
        };
        self.loaded(ask, name)
    }

    fn loaded(&self, ask: Ask<'_>, name: &str) -> Result<(), EngineError> {
        let what = ask.what.to_owned();
        let said = self.ask(ask)?.bytes(OUTPUT).map_err(|e| EngineError::new(format!("{what}: {e}")))?;
        // A failure in the middle has a status of 200: it is a line of the answer.
        for line in said.split(|byte| *byte == b'\n') {
            let line: Value = serde_json::from_slice(line).unwrap_or_default();
            if let Some(error) = line.get("error").and_then(Value::as_str) {
                return Err(EngineError::new(format!("{what}: {}: {error}", self.about().name)));
            }
        }
        match self.image(name)? {
            Some(_) => Ok(()),
            None => Err(EngineError::new(format!(
                "{what}: {} took the image, and does not have it",
                self.about().name
            ))),
        }
    }

    /// Gives the engine an image without any file under this name.
    pub fn load_empty(&self, name: &str) -> Result<(), EngineError> {
        let archive = upload::empty(name);
        let what = format!("loading the image {name}");
        let (length, mut reader) = (archive.len() as u64, archive.as_slice());
        let ask =
            Ask { upload: Some((&mut reader, length)), ..Ask::new("POST", "/images/load?quiet=1", &what) };
        self.loaded(ask, name)
    }

    /// Makes a network; its id.
    pub fn create_network(&self, name: &str, document: &Value) -> Result<String, EngineError> {
        let what = format!("making the network {name}");
        let made = self.document(Ask::new("POST", "/networks/create", &what).json(document))?;
        id(&made, &what)
    }

    /// What the engine says of a network.
    pub fn network(&self, name: &str) -> Result<Value, EngineError> {
        self.get(&format!("/networks/{}", quoted(name)), &format!("looking at the network {name}"))
    }

    /// Removes a network; that it is not there is no error.
    pub fn remove_network(&self, name: &str) -> Result<(), EngineError> {
        let what = format!("removing the network {name}");
        gone(self.act(Ask::new("DELETE", &format!("/networks/{}", quoted(name)), &what)))
    }

    /// Attaches a container to a network, with the settings of its end point.
    pub fn connect_network(
        &self,
        network: &str,
        container: &str,
        settings: &Value,
    ) -> Result<(), EngineError> {
        let what = format!("connecting {container} with the network {network}");
        let body = json!({ "Container": container, "EndpointConfig": settings });
        let path = format!("/networks/{}/connect", quoted(network));
        self.act(Ask::new("POST", &path, &what).json(&body))
    }

    /// Takes a container off a network.
    pub fn disconnect_network(&self, network: &str, container: &str) -> Result<(), EngineError> {
        let what = format!("disconnecting {container} from the network {network}");
        let body = json!({ "Container": container, "Force": true });
        let path = format!("/networks/{}/disconnect", quoted(network));
        self.act(Ask::new("POST", &path, &what).json(&body))
    }

    /// Makes a volume.
    pub fn create_volume(&self, name: &str, document: &Value) -> Result<(), EngineError> {
        let what = format!("making the volume {name}");
        self.act(Ask::new("POST", "/volumes/create", &what).json(document))
    }

    /// Removes a volume; that it is not there is no error.
    pub fn remove_volume(&self, name: &str) -> Result<(), EngineError> {
        let what = format!("removing the volume {name}");
        gone(self.act(Ask::new("DELETE", &format!("/volumes/{}", quoted(name)), &what)))
    }

    /// Makes a container; its id.
    pub fn create_container(&self, name: &str, document: &Value) -> Result<String, EngineError> {
        let what = format!("making the container {name}");
        let path = format!("/containers/create?name={}", quoted(name));
        let made = self.document(Ask::new("POST", &path, &what).json(document))?;
        id(&made, &what)
    }

    /// Starts a container.
    pub fn start(&self, container: &str) -> Result<(), EngineError> {
        self.container_act(container, "start", "starting")
    }

    /// Kills the processes of a container as SIGKILL does.
    pub fn kill(&self, container: &str) -> Result<(), EngineError> {
        self.container_act(container, "kill?signal=SIGKILL", "killing")
    }

    /// Asks a container to end, and kills it if it does not within its own time.
    pub fn stop(&self, container: &str, grace: Duration) -> Result<(), EngineError> {
        let what = format!("stopping {container}");
        let path = format!("/containers/{}/stop?t={}", quoted(container), grace.as_secs());
        let patience = Some(grace + Duration::from_secs(60));
        self.act(Ask { patience, ..Ask::new("POST", &path, &what) })
    }

    /// Lets a container stand still.
    pub fn pause(&self, container: &str) -> Result<(), EngineError> {
        self.container_act(container, "pause", "pausing")
    }

    /// Lets it go on.
    pub fn unpause(&self, container: &str) -> Result<(), EngineError> {
        self.container_act(container, "unpause", "unpausing")
    }

    fn container_act(&self, container: &str, operation: &str, doing: &str) -> Result<(), EngineError> {
        let path = format!("/containers/{}/{operation}", quoted(container));
        self.act(Ask::new("POST", &path, &format!("{doing} {container}")))
    }

    /// Removes a container with its anonymous volumes, running or not; that it is not there is no error.
    pub fn remove_container(&self, container: &str) -> Result<(), EngineError> {
        // Podman asks a container to end, and waits, where Docker kills it at once; one that stands still can be killed by neither.
        let _gone_on = self.unpause(container);
        let _ended = self.kill(container);
        let path = format!("/containers/{}?force=true&v=true", quoted(container));
        gone(self.act(Ask::new("DELETE", &path, &format!("removing {container}"))))
    }

    /// What a container does.
    pub fn life(&self, container: &str) -> Result<Life, EngineError> {
        let path = format!("/containers/{}/json", quoted(container));
        let found = self.get(&path, &format!("looking at {container}"))?;
        let text = |key: &str| found["State"].get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Life {
            status: text("Status"),
            exit_code: found["State"]["ExitCode"].as_i64().unwrap_or_default(),
            out_of_memory: found["State"]["OOMKilled"].as_bool().unwrap_or_default(),
            started: text("StartedAt"),
            error: text("Error"),
        })
    }

    /// All containers with a label, `key` or `key=value`.
    pub fn containers(&self, label: &str) -> Result<Vec<Listed>, EngineError> {
        let path = format!("/containers/json?all=true&filters={}", filter(label));
        let found = self.get(&path, "listing the containers")?;
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let all = found.as_array().cloned().unwrap_or_default();
        Ok(all
            .iter()
            .map(|one| Listed {
                id: text(&one["Id"]),
                name: text(&one["Names"][0]).trim_start_matches('/').to_owned(),
                status: text(&one["State"]),
            })
            .collect())
    }

    /// Removes all containers, then all networks and volumes with a label. What cannot be removed does not keep the rest.
    pub fn remove_all(&self, label: &str) -> Rubbish {
        let mut rubbish = Vec::new();
        let mut note = |result: Result<(), EngineError>| rubbish.extend(result.err().map(|e| e.text));
        match self.containers(label) {
            Ok(list) => {
                // Those that join another one's network go first: an engine refuses to remove what others stand on.
                for attempt in 0..2 {
                    for one in self.containers(label).unwrap_or_else(|_| list.clone()) {
                        let removed = self.remove_container(&one.id);
                        if attempt == 1 || removed.is_ok() {
                            note(removed);
                        }
                    }
                }
            }
            Err(error) => note(Err(error)),
        }
        for (path, list, what) in [("/networks", "", "network"), ("/volumes", "Volumes", "volume")] {
            let found =
                self.get(&format!("{path}?filters={}", filter(label)), &format!("listing the {what}s"));
            match found {
                Ok(found) => {
                    let all = if list.is_empty() { found } else { found[list].clone() };
                    for one in all.as_array().into_iter().flatten() {
                        let name = one["Name"].as_str().unwrap_or_default();
                        note(if what == "network" {
                            self.remove_network(name)
                        } else {
                            self.remove_volume(name)
                        });
                    }
                }
                Err(error) => note(Err(error)),
            }
        }
        Rubbish(rubbish)
    }

    /// What a container has printed, on both streams, with the engine's times; cut at some length.
    pub fn output(&self, container: &str) -> Result<Vec<u8>, EngineError> {
        let what = format!("reading the output of {container}");
        let path = format!("/containers/{}/logs?stdout=true&stderr=true&timestamps=true", quoted(container));
        let response = self.ask(Ask { document: false, ..Ask::new("GET", &path, &what) })?;
        let frames =
            bounded(response.into_body(), OUTPUT).map_err(|e| EngineError::new(format!("{what}: {e}")))?;
        Ok(super::exec::plain(&frames))
    }
}

/// That something is not there any more is what removing it is for.
fn gone(removed: Result<(), EngineError>) -> Result<(), EngineError> {
    match removed {
        Err(error) if error.status == Some(404) => Ok(()),
        removed => removed,
    }
}

fn filter(label: &str) -> String {
    quoted(&json!({ "label": [label] }).to_string())
}

fn with_algorithm(id: &str) -> String {
    if id.contains(':') { id.to_owned() } else { format!("sha256:{id}") }
}

fn id(made: &Value, what: &str) -> Result<String, EngineError> {
    let id = made.get("Id").and_then(Value::as_str).filter(|id| !id.is_empty());
    id.map(str::to_owned).ok_or_else(|| EngineError::new(format!("{what}: the engine gives it no id")))
}
