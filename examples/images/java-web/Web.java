import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;

/** A key-value store over HTTP: PUT and GET of /keys/NAME. */
public class Web {
    public static void main(String[] arguments) throws Exception {
        var values = new ConcurrentHashMap<String, byte[]>();
        var server = HttpServer.create(new InetSocketAddress(8080), 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/health", exchange -> {
            exchange.sendResponseHeaders(200, -1);
            exchange.close();
        });
        server.createContext("/keys/", exchange -> {
            var key = exchange.getRequestURI().getPath();
            byte[] answer = "none".getBytes(StandardCharsets.UTF_8);
            int code = 200;
            if (exchange.getRequestMethod().equals("PUT")) {
                values.put(key, exchange.getRequestBody().readAllBytes());
                answer = "stored".getBytes(StandardCharsets.UTF_8);
            } else if (values.containsKey(key)) {
                answer = values.get(key);
            } else {
                code = 404;
            }
            exchange.sendResponseHeaders(code, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.start();
        System.out.println("listening");
    }
}
