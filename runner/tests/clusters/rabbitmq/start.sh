export HOME=/data/home RABBITMQ_LOG_BASE=/data/log RABBITMQ_MNESIA_BASE=/data/mnesia RABBITMQ_LOGS=- RABBITMQ_CONFIG_FILE=/app/rabbitmq.conf
export RABBITMQ_NODENAME=rabbit@$(hostname -s) RABBITMQ_ENABLED_PLUGINS_FILE=/dev/null
mkdir -p $HOME /data/log /data/mnesia
if [ ! -e $HOME/.erlang.cookie ]; then echo BLOODHOUND > $HOME/.erlang.cookie; chmod 400 $HOME/.erlang.cookie; fi
chown -R rabbitmq: /data
exec setpriv --reuid rabbitmq --regid rabbitmq --clear-groups /usr/lib/rabbitmq/bin/rabbitmq-server
