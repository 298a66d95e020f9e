<?php
// A guest book: GET shows the number of entries, POST adds one.
mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
$db = new mysqli(getenv('DB_HOST') ?: 'db', getenv('DB_USER'), getenv('DB_PASSWORD'), getenv('DB_NAME'));
$db->query('CREATE TABLE IF NOT EXISTS entries (id INT AUTO_INCREMENT PRIMARY KEY, text VARCHAR(200) NOT NULL)');
header('Content-Type: application/json');
if ($_SERVER['REQUEST_METHOD'] === 'POST') {
    $statement = $db->prepare('INSERT INTO entries (text) VALUES (?)');
    $text = substr(file_get_contents('php://input'), 0, 200);
    $statement->bind_param('s', $text);
    $statement->execute();
    http_response_code(201);
}
echo json_encode(['entries' => (int) $db->query('SELECT count(*) FROM entries')->fetch_row()[0]]);
