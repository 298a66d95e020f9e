//! The workers of a search: each runs logs from the same boot, on a thread and a platform of its own.
//!
//! Key types: [`Pool`], [`Ran`]. A round of logs is answered in its order, so nothing that comes of it depends on how many workers there are.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use bloodhound_decisions::{Decisions, Log, Made, Mode};
use bloodhound_sim::World;

use super::search::interrupted;
use crate::platform::Chosen;
use crate::session::{Failure, Outcome, Session, Stopped, Worker, host_failure};
use crate::{bug, cpus, exit};

/// A run that a log has given.
#[derive(Clone, Debug)]
pub struct Ran {
    pub outcome: Outcome,
    /// The choices of it, if they were wanted.
    pub made: Vec<Made>,
}

/// What a worker is to run.
struct Job {
    /// Its place in the round.
    place: usize,
    log: Log,
    /// Choices are wanted.
    listen: bool,
    /// It is run whatever the time is.
    late: bool,
}

/// `None`: the time was over before it was begun.
type Answer = (usize, Result<Option<Box<Ran>>, Failure>);

/// What all workers share.
struct Shared {
    session: Arc<Session>,
    chosen: Chosen,
    interrupt: Arc<AtomicBool>,
    deadline: Option<Instant>,
    /// The log whose boot it is.
    boot: Log,
    booted: Mutex<Option<Arc<World>>>,
    jobs: Mutex<mpsc::Receiver<Job>>,
}

/// Workers that wait for rounds.
pub struct Pool {
    jobs: Option<mpsc::Sender<Job>>,
    answers: mpsc::Receiver<Answer>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// So many workers, whose runs go on from the boot of `log`. After `deadline` none is begun.
    ///
    /// # Errors
    /// The host gives no thread.
    pub fn new(
        session: Arc<Session>,
        chosen: Chosen,
        (interrupt, deadline): (Arc<AtomicBool>, Option<Instant>),
        log: &Log,
        workers: usize,
    ) -> Result<Pool, Failure> {
        // Loops are found again, and what comes after the boot is no part of it.
        let boot = Log { counted: Vec::new(), ..log.clone() };
        let (jobs, queue) = mpsc::channel();
        let (sender, answers) = mpsc::channel();
        let (booted, jobs_of_all) = (Mutex::default(), Mutex::new(queue));
        let shared =
            Arc::new(Shared { session, chosen, interrupt, deadline, boot, booted, jobs: jobs_of_all });
        let threads = cpus::spawn(workers, || {
            let (shared, sender) = (shared.clone(), sender.clone());
            move || shared.work(&sender)
        })?;
        Ok(Pool { jobs: Some(jobs), answers, threads })
    }

    /// Runs logs. Those that are answered are the first ones; fewer than asked for if the time was over.
    ///
    /// # Errors
    /// What the host says; interrupted.
    pub fn round(&self, logs: Vec<Log>) -> Result<Vec<Ran>, Failure> {
        self.ask(logs, false, false)
    }

    fn ask(&self, logs: Vec<Log>, listen: bool, late: bool) -> Result<Vec<Ran>, Failure> {
        let gone = || Failure { code: exit::BUG, text: "a worker has ended".into() };
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        let count = logs.len();
        for (place, log) in logs.into_iter().enumerate() {
            jobs.send(Job { place, log, listen, late }).map_err(|_| gone())?;
        }
        let mut answers: Vec<Option<Box<Ran>>> = (0..count).map(|_| None).collect();
        for _ in 0..count {
            let (place, answer) = self.answers.recv().map_err(|_| gone())?;
            answers[place] = answer?;
        }
        Ok(answers.into_iter().map_while(|answer| answer.map(|ran| *ran)).collect())
    }
}

impl Pool {
    /// Runs one log and keeps its choices; `late`: also when the time is over. `None`: it was.
    ///
    /// # Errors
    /// What the host says; interrupted.
    pub fn look(&self, log: Log, late: bool) -> Result<Option<Ran>, Failure> {
        let ran = self.ask(vec![log], true, late)?.pop();
        match &ran {
            Some(ran) if ran.outcome.stopped == Some(Stopped::Interrupted) => Err(interrupted()),
            _ => Ok(ran),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A panic of its own was contained.
            let _ignored = thread.join();
        }
    }
}

impl Shared {
    fn work(&self, answers: &mpsc::Sender<Answer>) {
        let mut worker = None;
        loop {
            let next = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(job) = next else { return };
            let place = job.place;
            let late = !job.late && self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let answer = match late {
                true => Ok(None),
                false => bug::contain(|| self.ran(&mut worker, job))
                    .unwrap_or_else(|text| Err(Failure { code: exit::BUG, text }))
                    .map(|ran| Some(Box::new(ran))),
            };
            if answer.is_err() {
                worker = None;
            }
            if answers.send((place, answer)).is_err() {
                return;
            }
        }
    }

    fn ran(&self, worker: &mut Option<Worker>, job: Job) -> Result<Ran, Failure> {
        let new = || Worker::new(self.session.clone(), &self.chosen, self.interrupt.clone());
        let made = worker.take().map_or_else(new, Ok)?;
        let worker = worker.insert(made);
        let booted = self.booted(worker)?;
        worker.restore(&booted);
        if job.listen {
            worker.listen_to_choices();
        }
        let outcome = worker.run_log(job.log, Mode::Lenient).map_err(host_failure)?;
        let made = if job.listen { worker.take_choices() } else { Vec::new() };
        Ok(Ran { outcome, made })
    }

    /// The stack as it is when the run begins, booted by the first worker that needs it.
    fn booted(&self, worker: &mut Worker) -> Result<Arc<World>, Failure> {
        let mut slot = self.booted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(world) = &*slot {
            return Ok(world.clone());
        }
        let world = Arc::new(worker.boot(Decisions::new(self.boot.clone(), Mode::Lenient))?);
        Ok(slot.insert(world).clone())
    }
}
