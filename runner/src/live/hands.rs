//! What is done to containers while a run goes on, one thing after the other in the order in which it was asked for, on a thread of its own: the
//! workload and the clock do not wait for an engine.
//!
//! Key types: [`Hands`], [`Deed`], [`Done`]. The thread knows what is paused and cut off, so that undoing what was refused is nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bloodhound_images::{Control, EngineError, Life};
use bloodhound_net::NodeId;
use serde_json::Value;

use super::run::Event;

/// How long a container may take to be gone when it is killed, and how often the engine is asked: its call that waits for the end of a
/// container has no limit.
const DYING: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// What is done to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Start,
    /// SIGKILL to all of its processes.
    Kill,
    /// It is asked to end, and killed after this time.
    Stop(Duration),
    Pause,
    Unpause,
    /// It is taken off all of its networks.
    Cut,
    /// It is attached to them again, with the same names and addresses.
    Join,
}

impl Deed {
    /// The engine's word, for messages.
    pub fn word(self) -> &'static str {
        match self {
            Deed::Start => "start",
            Deed::Kill => "kill",
            Deed::Stop(_) => "stop",
            Deed::Pause => "pause",
            Deed::Unpause => "unpause",
            Deed::Cut => "network disconnect",
            Deed::Join => "network connect",
        }
    }
}

/// Something to be done.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    pub node: NodeId,
    pub deed: Deed,
    /// The entry of the plan of faults that it begins, if it begins one.
    pub entry: Option<usize>,
}

/// What came of it.
#[derive(Debug)]
pub struct Done {
    pub task: Task,
    /// Of a start, the life that began.
    pub result: Result<Life, EngineError>,
}

/// A container as the hands know it.
#[derive(Clone, Debug, Default)]
pub struct Grip {
    pub container: String,
    /// Its networks with the settings of its end points.
    pub networks: Vec<(String, Value)>,
}

/// The thread that does it. Dropping it waits for what is under way.
#[derive(Debug)]
pub struct Hands {
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
    /// How much of what was asked for is not done yet.
    pub open: usize,
}

impl Hands {
    /// Begins; results go to `events`.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn new(
        control: Control,
        grips: BTreeMap<NodeId, Grip>,
        events: Sender<Event>,
    ) -> std::io::Result<Hands> {
        let (sender, tasks) = mpsc::channel::<Task>();
        let work = move || {
            let mut hand = Hand { control, grips, paused: BTreeSet::new(), cut: BTreeMap::new() };
            for task in tasks {
                let result = hand.perform(task);
                if events.send(Event::Done(Done { task, result })).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("engine".into()).spawn(work)?;
        Ok(Hands { tasks: Some(sender), thread: Some(thread), open: 0 })
    }

    /// Asks for something to be done.
    pub fn ask(&mut self, task: Task) {
        if let Some(tasks) = &self.tasks
            && tasks.send(task).is_ok()
        {
            self.open += 1;
        }
    }
}

impl Drop for Hands {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            // What it panicked about was told by the panic.
            let _ignored = thread.join();
        }
    }
}

struct Hand {
    control: Control,
    grips: BTreeMap<NodeId, Grip>,
    paused: BTreeSet<NodeId>,
    /// Networks from which containers were taken.
    cut: BTreeMap<NodeId, Vec<(String, Value)>>,
}

impl Hand {
    fn perform(&mut self, task: Task) -> Result<Life, EngineError> {
        let grip = self.grips.get(&task.node).cloned().unwrap_or_default();
        let (control, container) = (&self.control, grip.container.as_str());
        match task.deed {
            Deed::Start => {
                control.start(container)?;
                return control.life(container);
            }
            Deed::Kill => {
                control.kill(container)?;
                // What is not quite dead cannot be started.
                let begin = Instant::now();
                while control.life(container)?.runs() && begin.elapsed() < DYING {
                    std::thread::sleep(LOOK);
                }
            }
            Deed::Stop(grace) => control.stop(container, grace)?,
            Deed::Pause => {
                control.pause(container)?;
                self.paused.insert(task.node);
            }
            Deed::Unpause => {
                if self.paused.remove(&task.node) {
                    control.unpause(container)?;
                }
            }
            Deed::Cut => self.cut_off(task.node, &grip)?,
            Deed::Join => self.join(task.node, container)?,
        }
        Ok(Life::default())
    }

    fn cut_off(&mut self, node: NodeId, grip: &Grip) -> Result<(), EngineError> {
        for (network, settings) in &grip.networks {
            if let Err(error) = self.control.disconnect_network(network, &grip.container) {
                // Half cut off is no partition.
                self.join(node, &grip.container)?;
                return Err(error);
            }
            self.cut.entry(node).or_default().push((network.clone(), settings.clone()));
        }
        Ok(())
    }

    fn join(&mut self, node: NodeId, container: &str) -> Result<(), EngineError> {
        for (network, settings) in self.cut.remove(&node).unwrap_or_default() {
            self.control.connect_network(&network, container, &settings)?;
        }
        Ok(())
    }
}
