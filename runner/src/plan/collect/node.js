'use strict';
// Lets Node write the coverage of NODE_V8_COVERAGE not only at its end: a process that is killed has lost little then.
const v8 = require('v8');
const { isMainThread } = require('worker_threads');

if (process.env.NODE_V8_COVERAGE && typeof v8.takeCoverage === 'function') {
  const write = () => {
    try {
      v8.takeCoverage();
    } catch {
      // The service goes on all the same.
    }
  };
  let pause = 500;
  const later = () => {
    setTimeout(() => {
      write();
      pause = Math.min(pause * 2, 16000);
      later();
    }, pause).unref();
  };
  later();
  if (isMainThread) {
    for (const signal of ['SIGTERM', 'SIGINT']) {
      const handler = () => {
        write();
        // Without a handler of the service's own the signal does what it would have done.
        if (process.listenerCount(signal) === 1) {
          process.removeListener(signal, handler);
          process.kill(process.pid, signal);
        }
      };
      process.on(signal, handler);
    }
  }
}
