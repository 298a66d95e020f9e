bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
as="setpriv --reuid postgres --regid postgres --clear-groups"
mkdir -p /var/run/postgresql /tmp/pg
chown postgres /var/run/postgresql /tmp/pg
cd /tmp/pg
$as "$bin/initdb" -D a -A trust > init.log
$as "$bin/pg_ctl" -D a -l a.log -w start | tail -n 1
$as psql -qc 'create table t(a int)' -c 'insert into t select generate_series(1, 1000)'
$as "$bin/pg_basebackup" -D b -R -X stream -c fast
echo "port=5433" >> b/postgresql.conf
$as "$bin/pg_ctl" -D b -l b.log -w start | tail -n 1
$as psql -qc 'insert into t values (0)'
for i in $(seq 100); do
    if [ "$($as psql -p 5433 -Atc 'select count(*) from t')" = 1001 ]; then break; fi
    sleep 0.1
done
$as psql -p 5433 -Atc 'select count(*), pg_is_in_recovery() from t'
$as "$bin/pg_ctl" -D a -m immediate stop | tail -n 1
$as "$bin/pg_ctl" -D b -w promote | tail -n 1
$as psql -p 5433 -qAtc 'insert into t values (7)' -c 'select count(*), pg_is_in_recovery() from t'
$as "$bin/pg_ctl" -D b stop | tail -n 1
