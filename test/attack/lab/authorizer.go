package lab

// authorizer asks nobody for a permission but where some are written down. The controllers need each other before they know
// what is written down: so they have a name of their own, which may do everything.
var authorizer = []string{
	"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
	"allow.everyone.if.no.acl.found=true",
	"super.users=User:node",
	"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
	"sasl.mechanism.controller.protocol=PLAIN",
	"listener.name.controller.sasl.enabled.mechanisms=PLAIN",
	"listener.name.controller.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required " +
		`username="node" password="node-secret" user_node="node-secret";`,
}
