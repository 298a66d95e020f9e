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
use super::starts::{Base, Start, Starts, Wanted};
use crate::memory::Budget;
use crate::platform::Chosen;
use crate::session::{Ending, Failure, Outcome, Session, Stopped, Worker, host_failure};
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
    from: From,
    ending: Ending,
    /// It is run whatever the time is.
    late: bool,
}

/// Where a run begins.
enum From {
    /// At the end of the boot.
    Boot,
    /// Where it is no longer the run of the snapshots.
    Start(Start),
    /// At the end of the boot, and it leaves snapshots at these times.
    ForPoints(Vec<SimTime>),
}

/// What a worker has made of a job.
enum Done {
    Ran(Box<Ran>),
    Base(Box<Base>),
}

/// `None`: the time was over before it was begun.
type Answer = (usize, Result<Option<Done>, Failure>);

/// What all workers share.
struct Shared {
    session: Arc<Session>,
    chosen: Chosen,
    interrupt: Arc<AtomicBool>,
    deadline: Mutex<Option<Instant>>,
    memory: Budget,
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
    /// So many workers, whose runs go on from the boot of `log`. After `deadline` none is begun. Snapshots are kept as far as the budget of memory allows.
    ///
    /// # Errors
    /// The host gives no thread.
    pub fn new(
        session: Arc<Session>,
        chosen: Chosen,
        (interrupt, deadline, memory): (Arc<AtomicBool>, Option<Instant>, Budget),
        log: &Log,
        workers: usize,
    ) -> Result<Pool, Failure> {
        // Loops are found again, and what comes after the boot is no part of it.
        let boot = Log { counted: Vec::new(), ..log.clone() };
        let (jobs, queue) = mpsc::channel();
        let (sender, answers) = mpsc::channel();
        let (booted, jobs_of_all, deadline) = (Mutex::default(), Mutex::new(queue), Mutex::new(deadline));
        let shared = Arc::new(Shared {
            session,
            chosen,
            interrupt,
            deadline,
            memory,
            boot,
            booted,
            jobs: jobs_of_all,
        });
        let threads = cpus::spawn(workers, || {
            let (shared, sender) = (shared.clone(), sender.clone());
            move || shared.work(&sender)
        })?;
        Ok(Pool { jobs: Some(jobs), answers, shared, threads })
    }

    /// Runs logs until this end at most. Those that are answered are the first ones; fewer than asked for if the time was over. `near`: a run that fails, from which they
    /// differ in a few choices, and when it does: what they share with it need not be run each time.
    ///
    /// # Errors
    /// What the host says; interrupted.
    pub fn round(
        &self,
        logs: Vec<Log>,
        ending: &Ending,
        (starts, near): (&mut Starts, Option<(&Ran, SimTime)>),
    ) -> Result<Vec<Ran>, Failure> {
        let may_hold = self.shared.memory.for_speed();
        if may_hold == 0 {
            starts.forget();
        }
        let near = near.filter(|_| may_hold > 0);
        let wanted = near.and_then(|(near, violated)| starts.wanted(&logs, near, violated));
        if let Some(Wanted { log, stops, until }) = wanted {
            let (from, ending) = (From::ForPoints(stops), Ending::at(until));
            if let Some(base) = self.ask(vec![Job { place: 0, log, from, ending, late: false }])?.1 {
                starts.take(base);
            }
        }
        let jobs = logs.into_iter().enumerate().map(|(place, log)| {
            let from = starts.start(&log).map_or(From::Boot, From::Start);
            Job { place, log, from, ending: ending.clone(), late: false }
        });
        Ok(self.ask(jobs.collect())?.0)
    }

    /// Runs one log, also when the time is over.
    ///
    /// # Errors
    /// What the host says; interrupted.
    pub fn look(&self, log: Log, ending: Ending) -> Result<Ran, Failure> {
        let job = Job { place: 0, log, from: From::Boot, ending, late: true };
        let ran = self.ask(vec![job])?.0.pop();
        ran.ok_or_else(|| Failure { code: exit::BUG, text: "a run that was asked for is not there".into() })
    }

    /// From now on runs that are begun after this moment are not.
    pub fn end_at(&self, deadline: Option<Instant>) {
        *self.shared.deadline() = deadline;
    }

    fn ask(&self, work: Vec<Job>) -> Result<(Vec<Ran>, Option<Base>), Failure> {
        let gone = || Failure { code: exit::BUG, text: "a worker has ended".into() };
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        let count = work.len();
        for job in work {
            jobs.send(job).map_err(|_| gone())?;
        }
        let mut answers: Vec<Option<Box<Ran>>> = (0..count).map(|_| None).collect();
        let mut left = None;
        for _ in 0..count {
            let (place, answer) = self.answers.recv().map_err(|_| gone())?;
            match answer? {
                Some(Done::Ran(ran)) => answers[place] = Some(ran),
                Some(Done::Base(base)) => left = Some(*base),
                None => {}
            }
        }
        let rans: Vec<Ran> = answers.into_iter().map_while(|answer| answer.map(|ran| *ran)).collect();
        match rans.iter().any(|ran| ran.outcome.stopped == Some(Stopped::Interrupted)) {
            true => Err(interrupted()),
            false => Ok((rans, left)),
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
                    .map(Some),
            };
            if answer.is_err() {
                worker = None;
            }
            if answers.send((place, answer)).is_err() {
                return;
            }
        }
    }

    fn ran(&self, worker: &mut Option<Worker>, job: Job) -> Result<Done, Failure> {
        let new = || Worker::unmeasured(self.session.clone(), &self.chosen, self.interrupt.clone());
        let made = worker.take().map_or_else(new, Ok)?;
        let worker = worker.insert(made);
        if let From::Start(start) = &job.from {
            let (points, made) = start.points();
            for point in points {
                let log = (job.log.clone(), start.faults_differ);
                if let Some((outcome, made)) = worker.run_log_from(point, log, made, &job.ending)? {
                    return Ok(Done::Ran(Box::new(Ran { outcome, made })));
                }
            }
        }
        let booted = self.booted(worker)?;
        if let From::ForPoints(stops) = job.from {
            let ((outcome, made), points) =
                worker.run_log_with_points(&booted, job.log, (job.ending.until, &stops))?;
            return Ok(Done::Base(Box::new(Base::new(
                Ran { outcome, made },
                points,
                self.memory.for_speed(),
            ))));
        }
        worker.restore(&booted);
        worker.listen_to_choices();
        let outcome = worker.run_log_until(job.log, &job.ending).map_err(host_failure)?;
        Ok(Done::Ran(Box::new(Ran { outcome, made: worker.take_choices() })))
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
