# The interpreter waits for another thread's flag.
import sys
import threading
import time

done = False
n = 0


def set_it():
    global done
    time.sleep(0.1)
    done = True


threading.Thread(target=set_it).start()
while not done:
    n += 1
print("done", n > 0)
print(n, "rounds", file=sys.stderr)
