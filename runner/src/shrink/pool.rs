//! The workers of a search: each runs logs from the same boot, on a thread and a platform of its own.
//!
//! Key types: [`Pool`], [`Ran`]. A round of logs is answered in its order, so nothing that comes of it depends on how many workers there are.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use bloodhound_abi::SimTime;
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
    /// The choices of it.
    pub made: Vec<Made>,
}

/// What a worker is to run.
struct Job {
    /// Its place in the round.
    place: usize,
    log: Log,
    /// When it ends at the latest, in virtual time.
    until: SimTime,
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
    deadline: Mutex<Option<Instant>>,
    /// The log whose boot it is.
    boot: Log,
    booted: Mutex<Option<Arc<World>>>,
    jobs: Mutex<mpsc::Receiver<Job>>,
}

/// Workers that wait for rounds.
pub struct Pool {
    jobs: Option<mpsc::Sender<Job>>,
    answers: mpsc::Receiver<Answer>,
    shared: Arc<Shared>,
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
        let (booted, jobs_of_all, deadline) = (Mutex::default(), Mutex::new(queue), Mutex::new(deadline));
        let shared =
            Arc::new(Shared { session, chosen, interrupt, deadline, boot, booted, jobs: jobs_of_all });
        let threads = cpus::spawn(workers, || {
            let (shared, sender) = (shared.clone(), sender.clone());
            move || shared.work(&sender)
        })?;
        Ok(Pool { jobs: Some(jobs), answers, shared, threads })
    }

    /// Runs logs, each until this virtual time at most. Those that are answered are the first ones; fewer than asked for if the time was over.
    ///
    /// # Errors
    /// What the host says; interrupted.
    pub fn round(&self, logs: Vec<Log>, until: SimTime) -> Result<Vec<Ran>, Failure> {
        self.ask(logs, until, false)
    }

    /// Runs one log, also when the time is over.
    ///
    /// # Errors
    /// What the host says; interrupted.
    pub fn look(&self, log: Log, until: SimTime) -> Result<Ran, Failure> {
        let ran = self.ask(vec![log], until, true)?.pop();
        ran.ok_or_else(|| Failure { code: exit::BUG, text: "a run that was asked for is not there".into() })
    }

    /// From now on runs that are begun after this moment are not.
    pub fn end_at(&self, deadline: Option<Instant>) {
        *self.shared.deadline() = deadline;
    }

    fn ask(&self, logs: Vec<Log>, until: SimTime, late: bool) -> Result<Vec<Ran>, Failure> {
        let gone = || Failure { code: exit::BUG, text: "a worker has ended".into() };
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        let count = logs.len();
        for (place, log) in logs.into_iter().enumerate() {
            jobs.send(Job { place, log, until, late }).map_err(|_| gone())?;
        }
        let mut answers: Vec<Option<Box<Ran>>> = (0..count).map(|_| None).collect();
        for _ in 0..count {
            let (place, answer) = self.answers.recv().map_err(|_| gone())?;
            answers[place] = answer?;
        }
        let rans: Vec<Ran> = answers.into_iter().map_while(|answer| answer.map(|ran| *ran)).collect();
        match rans.iter().any(|ran| ran.outcome.stopped == Some(Stopped::Interrupted)) {
            true => Err(interrupted()),
            false => Ok(rans),
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
    fn deadline(&self) -> MutexGuard<'_, Option<Instant>> {
        self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, answers: &mpsc::Sender<Answer>) {
        let mut worker = None;
        loop {
            let next = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(job) = next else { return };
            let place = job.place;
            let late = !job.late && self.deadline().is_some_and(|deadline| Instant::now() >= deadline);
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
        let new = || Worker::unmeasured(self.session.clone(), &self.chosen, self.interrupt.clone());
        let made = worker.take().map_or_else(new, Ok)?;
        let worker = worker.insert(made);
        let booted = self.booted(worker)?;
        worker.restore(&booted);
        worker.listen_to_choices();
        let outcome = worker.run_log_until(job.log, job.until).map_err(host_failure)?;
        Ok(Ran { outcome, made: worker.take_choices() })
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
