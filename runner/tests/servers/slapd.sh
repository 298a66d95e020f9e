mkdir -p /run/slapd
chown openldap: /run/slapd
slapd -h "ldap:/// ldapi:///" -g openldap -u openldap -F /etc/ldap/slapd.d
up 389
base=$(ldapsearch -x -LLL -H ldap://127.0.0.1 -s base -b '' namingContexts | sed -n 's/namingContexts: //p')
ldapmodify -Q -Y EXTERNAL -H ldapi:/// > /dev/null <<'F'
dn: olcDatabase={1}mdb,cn=config
changetype: modify
replace: olcRootPW
olcRootPW: secret
F
for unit in one two; do
    printf 'dn: ou=%s,%s\nobjectClass: organizationalUnit\nou: %s\n' "$unit" "$base" "$unit"
    echo
done | ldapadd -x -D "cn=admin,$base" -w secret -H ldap://127.0.0.1 > /dev/null
ldapsearch -x -LLL -H ldap://127.0.0.1 -b "$base" '(ou=*)' ou | grep '^ou'
pid=$(pgrep -x slapd)
kill -INT "$pid"
ended "$pid"
