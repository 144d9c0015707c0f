"""Facts that are planted in documents, and questions about them: half with the fact's words, half with others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Needle = tuple[str, str]
"""(Fact, question)."""

CHOSEN_ON: Mapping[str, Sequence[Needle]] = {
    "en": (
        (
            "The staging database password is rotated every 17 days.",
            "How often is the staging database password rotated?",
        ),
        ("Invoices above 4,200 euros need the signature of Marta Olsen.", "Who must sign invoices above 4,200 euros?"),
        ("The archive of 2019 is stored in the Rotterdam data centre.", "Where is the archive of 2019 stored?"),
        ("The access code of the blue folder is 7413.", "What is the access code of the blue folder?"),
        ("Refunds are paid within nine business days.", "How long does a customer wait to get money back?"),
        ("Our contract with Helvetia ends on 3 March 2027.", "When does the agreement with Helvetia expire?"),
        ("The night shift begins at a quarter to eleven.", "At what time do people start to work at night?"),
        ("Only the finance team may delete customer records.", "Which department is allowed to erase client data?"),
        ("The mascot of the project is an otter named Juniper.", "What animal is the project's mascot?"),
        ("The backup of the mail server failed on 12 May.", "On which day did the mail server's backup fail?"),
    ),
    "es": (
        (
            "La contraseña de la base de datos de pruebas se cambia cada 17 días.",
            "¿Cada cuánto se cambia la contraseña de la base de datos de pruebas?",
        ),
        (
            "Las facturas de más de 4.200 euros necesitan la firma de Marta Olsen.",
            "¿Quién tiene que firmar las facturas de más de 4.200 euros?",
        ),
        (
            "El archivo de 2019 se guarda en el centro de datos de Róterdam.",
            "¿Dónde se guarda el archivo de 2019?",
        ),
        ("El código de acceso de la carpeta azul es 7413.", "¿Cuál es el código de acceso de la carpeta azul?"),
        (
            "Los reembolsos se pagan en nueve días hábiles.",
            "¿Cuánto espera un cliente para recuperar su dinero?",
        ),
        (
            "Nuestro contrato con Helvetia termina el 3 de marzo de 2027.",
            "¿Cuándo vence el acuerdo con Helvetia?",
        ),
        ("El turno de noche empieza a las once menos cuarto.", "¿A qué hora se comienza a trabajar por la noche?"),
        (
            "Solo el equipo de finanzas puede borrar los registros de clientes.",
            "¿Qué departamento está autorizado a eliminar datos de clientes?",
        ),
        ("La mascota del proyecto es una nutria llamada Enebro.", "¿Qué animal es la mascota del proyecto?"),
        (
            "La copia de seguridad del servidor de correo falló el 12 de mayo.",
            "¿Qué día falló la copia de seguridad del servidor de correo?",
        ),
    ),
    "pt": (
        (
            "A senha do banco de dados de testes é trocada a cada 17 dias.",
            "De quanto em quanto tempo a senha do banco de dados de testes é trocada?",
        ),
        (
            "As faturas acima de 4.200 euros precisam da assinatura de Marta Olsen.",
            "Quem deve assinar as faturas acima de 4.200 euros?",
        ),
        (
            "O arquivo de 2019 está guardado no centro de dados de Roterdã.",
            "Onde está guardado o arquivo de 2019?",
        ),
        ("O código de acesso da pasta azul é 7413.", "Qual é o código de acesso da pasta azul?"),
        (
            "Os reembolsos são pagos em nove dias úteis.",
            "Quanto tempo um cliente espera para receber o dinheiro de volta?",
        ),
        (
            "O nosso contrato com a Helvetia termina em 3 de março de 2027.",
            "Quando vence o acordo com a Helvetia?",
        ),
        ("O turno da noite começa às quinze para as onze.", "A que horas as pessoas iniciam o trabalho noturno?"),
        (
            "Somente a equipe financeira pode apagar os registros de clientes.",
            "Qual departamento tem permissão para excluir dados de clientes?",
        ),
        ("O mascote do projeto é uma lontra chamada Zimbro.", "Que animal é o mascote do projeto?"),
        (
            "O backup do servidor de e-mail falhou em 12 de maio.",
            "Em que dia falhou o backup do servidor de e-mail?",
        ),
    ),
}
"""Used with the first half of the documents, on which the constants were chosen."""

REPORTED_ON: Mapping[str, Sequence[Needle]] = {
    "en": (
        ("The printer on the third floor uses toner of type QX-88.", "Which toner does the third floor printer use?"),
        ("Ticket 5519 was closed by Ana Ribeiro.", "Who closed ticket 5519?"),
        ("The emergency phone number of the plant is 555-0142.", "What is the plant's emergency phone number?"),
        ("The board meets on the second Tuesday of each quarter.", "When does the board meet?"),
        ("Visitors must leave their badges at gate C.", "Where do guests hand in their passes?"),
        ("The pilot in Lisbon cost 82,000 dollars.", "How much money was spent on the trial in Lisbon?"),
        ("Shipments to Norway leave from the harbour of Kiel.", "From which port are goods sent to Norway?"),
        ("The cafeteria serves no peanuts because of allergies.", "Why are there no peanuts in the cafeteria?"),
        ("Temperature alarms are raised above 41 degrees.", "At what temperature is an alarm raised?"),
        ("The previous owner of the building was a brewery.", "To whom did the building belong earlier?"),
    ),
    "es": (
        (
            "La impresora de la tercera planta usa tóner del tipo QX-88.",
            "¿Qué tóner usa la impresora de la tercera planta?",
        ),
        ("El tique 5519 lo cerró Ana Ribeiro.", "¿Quién cerró el tique 5519?"),
        (
            "El teléfono de emergencia de la fábrica es el 555-0142.",
            "¿Cuál es el teléfono de emergencia de la fábrica?",
        ),
        (
            "La junta se reúne el segundo martes del trimestre.",
            "¿Cuándo se reúne la junta?",
        ),
        ("Los visitantes dejan su tarjeta en la puerta C.", "¿Dónde entregan los invitados su pase?"),
        ("El piloto de Lisboa costó 82.000 dólares.", "¿Cuánto dinero se gastó en la prueba de Lisboa?"),
        (
            "Los envíos a Noruega salen del puerto de Kiel.",
            "¿Desde qué ciudad se mandan las mercancías a Noruega?",
        ),
        (
            "La cafetería no sirve cacahuetes por las alergias.",
            "¿Por qué no hay cacahuetes en la cafetería?",
        ),
        (
            "Las alarmas de temperatura saltan por encima de 41 grados.",
            "¿A qué temperatura salta una alarma?",
        ),
        (
            "El dueño anterior del edificio era una cervecería.",
            "¿A quién pertenecía antes el edificio?",
        ),
    ),
    "pt": (
        (
            "A impressora do terceiro andar usa toner do tipo QX-88.",
            "Qual toner a impressora do terceiro andar usa?",
        ),
        ("O chamado 5519 foi fechado por Ana Ribeiro.", "Quem fechou o chamado 5519?"),
        (
            "O telefone de emergência da fábrica é 555-0142.",
            "Qual é o telefone de emergência da fábrica?",
        ),
        (
            "O conselho se reúne na segunda terça-feira do trimestre.",
            "Quando o conselho se reúne?",
        ),
        ("Os visitantes deixam o crachá no portão C.", "Onde os convidados entregam o passe?"),
        ("O piloto em Lisboa custou 82.000 dólares.", "Quanto dinheiro foi gasto no teste em Lisboa?"),
        (
            "As remessas para a Noruega saem do porto de Kiel.",
            "De qual cidade as mercadorias são enviadas para a Noruega?",
        ),
        (
            "A cantina não serve amendoim por causa das alergias.",
            "Por que não há amendoim na cantina?",
        ),
        (
            "Os alarmes de temperatura disparam acima de 41 graus.",
            "A que temperatura um alarme dispara?",
        ),
        (
            "O dono anterior do prédio era uma cervejaria.",
            "A quem o prédio pertencia antes?",
        ),
    ),
}
"""Used with the second half, of which the result is reported."""
