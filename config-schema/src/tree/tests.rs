use super::*;

fn tree(text: &str) -> Node {
    let (node, diagnostics) = parse(&Source::new(Path::new("f.yaml"), text));
    assert_eq!(diagnostics, []);
    node.expect("a tree")
}

fn at<'a>(node: &'a Node, path: &[&str]) -> &'a Node {
    path.iter().fold(node, |node, key| match &node.value {
        Value::Map(entries) => &entries.iter().find(|e| e.key == *key).expect(key).value,
        Value::Seq(items) => &items[key.parse::<usize>().expect("index")],
        Value::Scalar(_) => panic!("no {key} in a scalar"),
    })
}

fn scalar(node: &Node) -> (&str, ScalarKind) {
    match &node.value {
        Value::Scalar(s) => (&s.text, s.kind),
        other => panic!("{other:?}"),
    }
}

#[test]
fn scalars_keep_their_text() {
    let t = tree("z: True\na: 1.10\nb: on\nc: 'true'\nd: true\ne: 0440\nf: ~\ng: 1e-5\nh: 22:22\ni: 1_000\n");
    assert_eq!(scalar(at(&t, &["z"])), ("True", ScalarKind::Bool));
    assert_eq!(scalar(at(&t, &["a"])), ("1.10", ScalarKind::Number));
    assert_eq!(scalar(at(&t, &["b"])), ("on", ScalarKind::String));
    assert_eq!(scalar(at(&t, &["c"])), ("true", ScalarKind::String));
    assert_eq!(scalar(at(&t, &["d"])), ("true", ScalarKind::Bool));
    assert_eq!(scalar(at(&t, &["e"])), ("0440", ScalarKind::Number));
    assert!(at(&t, &["f"]).is_null());
    assert_eq!(scalar(at(&t, &["g"])), ("1e-5", ScalarKind::Number));
    assert_eq!(scalar(at(&t, &["h"])), ("22:22", ScalarKind::String));
    assert_eq!(scalar(at(&t, &["i"])), ("1_000", ScalarKind::Number));
}

#[test]
fn places_count_characters_and_skip_the_byte_order_mark() {
    let source = Source::new(Path::new("f.yaml"), "\u{feff}# é\r\né: [x, yy]\r\n");
    let (node, _) = parse(&source);
    let node = node.expect("a tree");
    let place = source.place(at(&node, &["é", "1"]).span);
    assert_eq!((place.line, place.column, place.end_column), (2, 8, 10));
    assert_eq!(place.source_line, "é: [x, yy]");
}

#[test]
fn merge_keys_and_aliases_point_at_the_definition() {
    let text = "x: &x\n  k: 1\n  l: 2\ny:\n  <<: *x\n  l: 3\nz: *x\n";
    let source = Source::new(Path::new("f.yaml"), text);
    let (node, diagnostics) = parse(&source);
    assert_eq!(diagnostics, []);
    let node = node.expect("a tree");
    assert_eq!(scalar(at(&node, &["y", "k"])).0, "1");
    assert_eq!(scalar(at(&node, &["y", "l"])).0, "3");
    assert_eq!(source.place(at(&node, &["y", "k"]).span).line, 2);
    assert_eq!(source.place(at(&node, &["z", "l"]).span).line, 3);
}

#[test]
fn duplicate_keys_are_errors_and_the_rest_is_still_parsed() {
    let (node, diagnostics) = parse(&Source::new(Path::new("f"), "a: 1\nb: 2\na: 3\nc: 4\n"));
    assert_eq!(diagnostics.len(), 1);
    assert_eq!(diagnostics[0].code, Code::DuplicateKey);
    assert_eq!(diagnostics[0].place.as_ref().map(|p| (p.line, p.column)), Some((3, 1)));
    let node = node.expect("a tree");
    assert_eq!(scalar(at(&node, &["a"])).0, "1");
    assert_eq!(scalar(at(&node, &["c"])).0, "4");
}

#[test]
fn alias_bombs_and_deep_nesting_are_refused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for i in 1..9 {
        bomb += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 9].join(", "));
    }
    let (node, diagnostics) = parse(&Source::new(Path::new("f"), &bomb));
    assert!(node.is_none());
    assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
    for deep in [format!("a: {}{}", "[".repeat(5000), "]".repeat(5000)), "- ".repeat(5000) + "a"] {
        let (node, diagnostics) = parse(&Source::new(Path::new("f"), &deep));
        assert!(node.is_none());
        assert!(!diagnostics.is_empty());
    }
}

#[test]
fn an_empty_file_is_a_null() {
    assert!(tree("").is_null());
    assert!(tree("# only a comment\n").is_null());
}

#[test]
fn several_documents_are_refused() {
    let (_, diagnostics) = parse(&Source::new(Path::new("f"), "a: 1\n---\nb: 1\n"));
    assert_eq!(diagnostics.len(), 1);
    assert_eq!(diagnostics[0].code, Code::Syntax);
}
