//! Readers of what other tools write.

use super::*;

fn no_scripts(_: &str) -> Option<String> {
    None
}

fn parsed(text: &str) -> Report {
    read(text.as_bytes(), &no_scripts).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn lines(report: &Report, file: &str) -> Vec<(u32, bool)> {
    report.files[file].lines.iter().map(|(line, covered)| (*line, *covered)).collect()
}

#[test]
fn lcov_is_read() {
    let text = "TN:test\nSF:/src/a.c\nFN:3,main\nFN:9,12,other\nFNDA:4,main\nFNDA:0,other\nDA:3,4\nDA:4,0,abc\nDA:5,1e3\nBRDA:3,0,0,1\nLF:3\nend_of_record\nSF:b.c\nDA:1,0\nend_of_record\n";
    let report = parsed(text);
    assert_eq!(lines(&report, "/src/a.c"), [(3, true), (4, false), (5, true)]);
    assert_eq!(lines(&report, "b.c"), [(1, false)]);
    let functions: Vec<_> = report.files["/src/a.c"].functions.clone().into_iter().collect();
    assert_eq!(functions, [((3, "main".to_owned()), true), ((9, "other".to_owned()), false)]);
    assert!(read(b"TN:\nDA:1,1\n", &no_scripts).unwrap_err().contains("line 2"));
    assert!(read(b"SF:a\nDA:x,1\n", &no_scripts).unwrap_err().contains("line 2"));
}

#[test]
fn cobertura_is_read() {
    let text = "<?xml version=\"1.0\" ?>\n<!DOCTYPE coverage SYSTEM 'x.dtd'>\n<coverage line-rate=\"1\"><!-- a > b --><packages><package>\
        <classes><class name=\"A\" filename=\"com/A&amp;B.java\"><methods><method name=\"get&lt;T&gt;\"><lines><line number=\"3\" hits=\"2\"/></lines></method></methods>\
        <lines><line number=\"3\" hits=\"2\"/><line number='4' hits='0' /></lines></class></classes></package></packages></coverage>";
    let report = parsed(text);
    assert_eq!(lines(&report, "com/A&B.java"), [(3, true), (4, false)]);
    assert_eq!(report.files["com/A&B.java"].functions.keys().next(), Some(&(3, "get<T>".to_owned())));
    let cut = read(b"<coverage><class filename=\"a\"><line number=", &no_scripts).unwrap_err();
    assert!(cut.contains("line 1"), "{cut}");
}

#[test]
fn coverage_py_is_read() {
    let text = r#"{"meta": {"version": "6.5.0"}, "files": {"app/main.py": {"executed_lines": [1, 2], "missing_lines": [4],
        "functions": {"": {"executed_lines": [1], "missing_lines": []}, "run": {"executed_lines": [], "missing_lines": [4]}}}}}"#;
    let report = parsed(text);
    assert_eq!(lines(&report, "app/main.py"), [(1, true), (2, true), (4, false)]);
    assert_eq!(
        report.files["app/main.py"].functions.clone().into_iter().collect::<Vec<_>>(),
        [((4, "run".to_owned()), false)]
    );
}

#[test]
fn profiles_of_go_are_read() {
    let text = "mode: atomic\nexample.org/shop/cart/cart.go:13.20,15.2 1 1\nexample.org/shop/cart/cart.go:21.15,23.3 1 0\nexample.org/shop/cart/cart.go:21.15,21.30 1 2\n";
    let report = parsed(text);
    let expected = [(13, true), (14, true), (21, true), (22, false), (23, false)];
    assert_eq!(lines(&report, "example.org/shop/cart/cart.go"), expected);
    assert!(read(b"mode: set\nnonsense\n", &no_scripts).unwrap_err().contains("line 2"));
    assert!(read(b"mode: set\na.go:1.1,99999999999.1 1 1\n", &no_scripts).is_err());
}

#[test]
fn coverage_of_v8_is_read() {
    let script = "// start\nfunction used(x) {\n  if (x) {\n    return 1;\n  }\n  return 2;\n}\nfunction unused() {\n  return 3;\n}\nused(1);\n";
    let find = |text: &str| script.find(text).expect("in the script");
    let (used, unused) = (find("function used"), find("function unused"));
    let (used_end, unused_end) = (unused - 1, find("used(1)") - 1);
    let never = (find("  return 2"), find("  return 2") + 12);
    let text = format!(
        r#"{{"result":[{{"scriptId":"1","url":"node:internal/x","functions":[]}},{{"scriptId":"2","url":"file:///app/a%20b.js","functions":[
        {{"functionName":"","ranges":[{{"startOffset":0,"endOffset":{},"count":1}}],"isBlockCoverage":true}},
        {{"functionName":"used","ranges":[{{"startOffset":{used},"endOffset":{used_end},"count":1}},{{"startOffset":{},"endOffset":{},"count":0}}],"isBlockCoverage":true}},
        {{"functionName":"unused","ranges":[{{"startOffset":{unused},"endOffset":{unused_end},"count":0}}],"isBlockCoverage":false}}]}}]}}"#,
        script.len(),
        never.0,
        never.1
    );
    let scripts = |path: &str| (path == "/app/a b.js").then(|| script.to_owned());
    let report = read(text.as_bytes(), &scripts).expect("a report");
    let expected = [(2, true), (3, true), (4, true), (6, false), (8, false), (9, false), (11, true)];
    assert_eq!(lines(&report, "/app/a b.js"), expected);
    let functions: Vec<_> = report.files["/app/a b.js"].functions.clone().into_iter().collect();
    assert_eq!(functions, [((2, "used".to_owned()), true), ((8, "unused".to_owned()), false)]);
}

#[test]
fn other_files_are_refused() {
    for text in ["", "hello", "{}", "<html/>", "\0\0\0"] {
        assert!(read(text.as_bytes(), &no_scripts).is_err(), "{text:?}");
    }
}

#[test]
fn damaged_files_do_no_harm() {
    let whole = [
        "TN:\nSF:a.c\nFN:1,f\nFNDA:1,f\nDA:1,1\nend_of_record\n",
        "<coverage><class filename='a'><line number='1' hits='1'/></class></coverage>",
        r#"{"meta":{},"files":{"a":{"executed_lines":[1],"missing_lines":[2]}}}"#,
        r#"{"result":[{"url":"file:///a","functions":[{"functionName":"f","ranges":[{"startOffset":0,"endOffset":3,"count":1}]}]}]}"#,
        "mode: set\na.go:1.1,2.2 1 1\n",
    ];
    let scripts = |_: &str| Some("ab\ncd é\n".to_owned());
    for text in whole {
        for cut in 0..text.len() {
            let _any = read(&text.as_bytes()[..cut], &scripts);
            let mut flipped = text.as_bytes().to_vec();
            flipped[cut] ^= 0x15;
            let _any = read(&flipped, &scripts);
        }
    }
}

#[test]
fn jacoco_is_read() {
    let text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><!DOCTYPE report PUBLIC \"-//JACOCO//DTD Report 1.1//EN\" \"report.dtd\"><report name=\"shop\">\
        <package name=\"com/shop\"><class name=\"com/shop/Cart\" sourcefilename=\"Cart.java\"><method name=\"add\" desc=\"()V\" line=\"7\">\
        <counter type=\"LINE\" missed=\"0\" covered=\"2\"/><counter type=\"METHOD\" missed=\"0\" covered=\"1\"/></method>\
        <method name=\"clear\" desc=\"()V\" line=\"12\"><counter type=\"METHOD\" missed=\"1\" covered=\"0\"/></method>\
        <counter type=\"METHOD\" missed=\"1\" covered=\"1\"/></class><sourcefile name=\"Cart.java\"><line nr=\"7\" mi=\"0\" ci=\"3\" mb=\"0\" cb=\"0\"/>\
        <line nr=\"8\" mi=\"2\" ci=\"1\"/><line nr=\"12\" mi=\"4\" ci=\"0\"/></sourcefile></package></report>";
    let report = parsed(text);
    assert_eq!(lines(&report, "com/shop/Cart.java"), [(7, true), (8, true), (12, false)]);
    let functions: Vec<_> = report.files["com/shop/Cart.java"].functions.clone().into_iter().collect();
    assert_eq!(functions, [((7, "add".to_owned()), true), ((12, "clear".to_owned()), false)]);
}

#[test]
fn lines_of_python_are_those_of_statements() {
    let source = "\"\"\"Text.\"\"\"\ndef f(a,\n      b):\n    'Text.'\n    return (a +\n            b)\n\ndef g(): return 1\n";
    let scripts = |path: &str| (path == "/app/a.py").then(|| source.to_owned());
    let text = "bloodhound python 1\nF 7.0 /app/a.py\nF 7.1 /app/b\\\\\\n.py\nC 7.0 1 - 1,2,8\nC 7.0 2 f 2,5,6\nC 7.0 8 g 8\nC 7.1 1 - 1,2\n\
        L 7.0 1\nL 7.0 2\nL 7.1 2\nL 7.0 6\nL 7.0 ";
    let report = read(text.as_bytes(), &scripts).expect("a report");
    assert_eq!(lines(&report, "/app/a.py"), [(2, true), (5, true), (8, false)]);
    assert_eq!(lines(&report, "/app/b\\\n.py"), [(1, false), (2, true)]);
    let functions: Vec<_> = report.files["/app/a.py"].functions.clone().into_iter().collect();
    assert_eq!(functions, [((2, "f".to_owned()), true), ((8, "g".to_owned()), false)]);
    assert!(read(b"bloodhound python 1\nX 1 2\n", &scripts).unwrap_err().contains("line 2"));
    assert!(read(b"bloodhound python 1\nL 1 2\n", &scripts).is_err());
    assert_eq!(read(b"bloodhound python 1\n", &scripts), Ok(Report::default()));
}
