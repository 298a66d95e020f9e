/** A loop that the machine's compiler makes code of while it runs. */
public class Wait {
    static volatile boolean stop;
    static long rounds;

    public static void main(String[] args) throws Exception {
        Thread thread = new Thread(() -> {
            while (!stop) rounds++;
            System.out.println("seen");
        });
        thread.start();
        Thread.sleep(100);
        stop = true;
        thread.join();
        System.out.println("done");
    }
}
